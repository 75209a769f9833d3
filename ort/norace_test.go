//go:build !race

package ort

// Not releasing the smallest thing a session has takes 3 MB.
const leakSlackBytes = 2 << 20
