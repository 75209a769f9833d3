//go:build race

package ort

// The race detector keeps more than a kilobyte for each session made.
const leakSlackBytes = 16 << 20
