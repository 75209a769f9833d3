package hostcheck

import (
	"fmt"
	"strings"
)

// source is where a library of CUDA comes from: a package of NVIDIA's repository
// for Debian 12, and one of PyPI.
type source struct{ debian, wheel string }

// sources are the libraries by the beginning of their names. %s is the version of
// CUDA as package names have it, %d its major number.
var sources = []struct{ library, debian, wheel string }{
	{"libcudart.so", "cuda-cudart-%s", "nvidia-cuda-runtime"},
	{"libcublas.so", "libcublas-%s", "nvidia-cublas"},
	{"libcublasLt.so", "libcublas-%s", "nvidia-cublas"},
	{"libcufft.so", "libcufft-%s", "nvidia-cufft"},
	{"libcurand.so", "libcurand-%s", "nvidia-curand"},
	{"libnvrtc.so", "cuda-nvrtc-%s", "nvidia-cuda-nvrtc"},
	{"libnvJitLink.so", "libnvjitlink-%s", "nvidia-nvjitlink"},
	{"libcudnn.so", "libcudnn9-cuda-%d", "nvidia-cudnn"},
}

// versionsOf is which minor version of CUDA packages are named after here. Any
// later one of the same major version does as well.
var versionsOf = map[int]string{12: "12-8", 13: "13-0"}

// packageOf returns where a library comes from; false for one that is not of
// CUDA.
func packageOf(library string, major int) (source, bool) {
	if library == "libcuda.so.1" {
		return source{"libcuda1", "nothing: it comes with the driver"}, true
	}
	for _, s := range sources {
		if !strings.HasPrefix(library, s.library+".") {
			continue
		}
		wheel := s.wheel
		if major < 13 || s.wheel == "nvidia-cudnn" {
			wheel += fmt.Sprintf("-cu%d", major)
		}
		version := any(versionsOf[major])
		if strings.Contains(s.debian, "%d") {
			version = major
		}
		return source{fmt.Sprintf(s.debian, version), wheel}, true
	}
	return source{}, false
}
