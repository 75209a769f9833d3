//go:build goexperiment.simd && amd64

package predictor

import "simd/archsimd"

// kernels returns those that this build has and this machine can run.
func kernels() map[string]kernel {
	all := map[string]kernel{"plain": plain}
	if archsimd.X86.AVX2() && archsimd.X86.FMA() {
		all["avx2"] = avx2
	}
	if archsimd.X86.AVX512() {
		all["avx512"] = avx512
	}
	return all
}
