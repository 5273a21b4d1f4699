//go:build race

package store_test

// underRace is true if the race detector runs, which slows down the driver for
// SQLite twenty times.
const underRace = true
