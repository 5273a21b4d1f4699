//go:build race

package store_test

// underRace says that the driver for SQLite takes twenty times as long.
const underRace = true
