package hostcheck

import (
	"debug/elf"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// providerFiles lie beside a CUDA build of ONNX Runtime, the provider itself last.
var providerFiles = []string{"libonnxruntime_providers_shared.so", "libonnxruntime_providers_cuda.so"}

// providerFile is the provider for CUDA. ONNX Runtime loads it only when a session asks for a GPU, so
// that what is wrong with it would show in a worker at first.
func (h *host) providerFile() string {
	return filepath.Join(filepath.Dir(h.Runtime.Path), providerFiles[1])
}

// provider is ONNX Runtime's provider for CUDA, with what it is linked with. The error is why its dependencies cannot be read.
func (h *host) provider() []about {
	var err error
	h.linked, err = h.Needs(h.path(h.providerFile()))
	a := of(err, "path", h.Runtime.Path, "providers", joined(h.Runtime.Providers), "pinned", h.Runtime.Pinned, "file", h.providerFile())
	for name, text := range h.device()[0].words {
		a.add(name, text)
	}
	return []about{a}
}

// missingLibraries are those of CUDA without which the provider does not start.
func (h *host) missingLibraries() (list []about) {
	major := cudaMajor(h.linked)
	for _, name := range h.linked {
		if debian, wheel, ok := packagesOf(name, major); ok && !h.locate(name) {
			list = append(list, of(nil, "library", name, "package", debian, "wheel", wheel))
		}
	}
	return list
}

// lateLibraries are those that the provider loads when an operator needs them, so that its start
// does not show that they are missing.
func (h *host) lateLibraries() (list []about) {
	major := cudaMajor(h.linked)
	for _, late := range []struct{ name, without string }{
		{"libcudnn.so.9", "convolutions and normalizations fail without it"},
		{fmt.Sprintf("libcufft.so.%d", major-1), "Fourier transforms fail without it"},
		{fmt.Sprintf("libnvrtc.so.%d", major), "cuDNN cannot build some of its kernels without it"},
	} {
		if !slices.Contains(h.linked, late.name) && !h.locate(late.name) {
			debian, wheel, _ := packagesOf(late.name, major)
			list = append(list, of(nil, "library", late.name, "without", late.without, "package", debian, "wheel", wheel))
		}
	}
	return list
}

// try runs a small model, the last word on whether all the rest is right.
func (h *host) try() []about { return []about{of(h.Try(h.ctx, h.UUID), "gpu", h.UUID)} }

// Needs returns the libraries that a file is linked with.
func Needs(path string) ([]string, error) {
	f, err := elf.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return f.ImportedLibraries()
}

// versioned are libraries whose version is that of CUDA.
var versioned = regexp.MustCompile(`\blib(?:cudart|cublas)\.so\.(\d+)`)

// cudaMajor returns the major version of CUDA that libraries belong to, 0 if unknown.
func cudaMajor(list []string) int {
	major := 0
	if found := versioned.FindStringSubmatch(strings.Join(list, " ")); found != nil {
		major, _ = strconv.Atoi(found[1])
	}
	return major
}

// locate looks for a library beside the runtime and where the system's loader does.
func (h *host) locate(name string) bool {
	folders := append([]string{filepath.Dir(h.Runtime.Path)}, h.LibraryPath...)
	folders = append(folders, h.configured("/etc/ld.so.conf", 0)...)
	folders = append(folders, "/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64", "/usr/lib64", "/lib", "/usr/lib")
	return slices.ContainsFunc(folders, func(folder string) bool { return h.there(filepath.Join(folder, name)) })
}

// includesMax bounds how deep files of ldconfig include each other.
const includesMax = 4

// configured returns the folders that a file of ldconfig names, and those of the files that it
// includes. What cannot be read names none, as for the loader.
func (h *host) configured(file string, depth int) (folders []string) {
	text, err := os.ReadFile(h.path(file))
	if err != nil || depth > includesMax {
		return nil
	}
	for line := range strings.Lines(string(text)) {
		line, _, _ = strings.Cut(line, "#")
		fields := strings.Fields(line)
		switch {
		case len(fields) == 0:
		case fields[0] == "include" && len(fields) > 1:
			pattern := fields[1]
			if !filepath.IsAbs(pattern) {
				pattern = filepath.Join(filepath.Dir(file), pattern)
			}
			files, _ := filepath.Glob(h.path(pattern)) // a bad pattern includes nothing
			for _, f := range files {
				folders = append(folders, h.configured(strings.TrimPrefix(f, strings.TrimSuffix(h.path("/"), "/")), depth+1)...)
			}
		default:
			folders = append(folders, fields[0])
		}
	}
	return folders
}

// sources are the libraries of CUDA by the beginning of their names, with the packages
// that have them in NVIDIA's repository for Debian 12 and on PyPI. %s is the version of
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

// versionsOf are those of CUDA in the names of packages. A later minor one does as well.
var versionsOf = map[int]string{12: "12-8", 13: "13-0"}

// packagesOf returns the packages that have a library, false for one that is not of CUDA.
func packagesOf(library string, major int) (debian, wheel string, ok bool) {
	if library == "libcuda.so.1" {
		return "libcuda1", "nothing: it comes with the driver", true
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
		return fmt.Sprintf(s.debian, version), wheel, true
	}
	return "", "", false
}
