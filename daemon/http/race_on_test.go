//go:build race

package http

const raceEnabled = true
