//go:build !race

package settle_test

const raceDetector = false
