//go:build !race

package watcher_test

const raceDetector = false
