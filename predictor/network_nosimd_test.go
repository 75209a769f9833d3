//go:build !goexperiment.simd || !amd64

package predictor

// kernels returns those that this build has and this machine can run.
func kernels() map[string]kernel { return map[string]kernel{"plain": plain} }
