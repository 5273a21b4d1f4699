//go:build race

package settle_test

// The race detector makes SQLite, which is Go here, twenty times as slow.
const raceDetector = true
