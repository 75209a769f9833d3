//go:build !goexperiment.simd || !amd64

package predictor

// fastest returns the fastest kernel of this build on this machine.
func fastest() kernel { return plain }
