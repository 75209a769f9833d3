//go:build !goexperiment.simd || !amd64

package predictor

// fastest returns the fastest kernel that this build has for this machine.
func fastest() kernel { return plain }
