//go:build race

package test

// raced tells that the tests, and so the daemon, run under the race detector.
const raced = true
