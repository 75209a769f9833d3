package hostcheck

import (
	"context"
	"debug/elf"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/overlapd/overlapd/cuda"
	"github.com/overlapd/overlapd/ort"
)

// cudaProvider is how ONNX Runtime names its execution provider.
const cudaProvider = "CUDAExecutionProvider"

// provider are the files that lie beside a CUDA build of ONNX Runtime.
var provider = []string{"libonnxruntime_providers_shared.so", "libonnxruntime_providers_cuda.so"}

// lookAtRuntime checks ONNX Runtime from its build to a model that runs.
func (l *looking) lookAtRuntime(ctx context.Context) {
	if l.RuntimePath == "" {
		return // the caller, which looked for it, reports that
	}
	if !slices.Contains(l.Providers, cudaProvider) {
		l.add("ort-cpu", "path", l.RuntimePath, "providers", words(l.Providers), "pinned", ort.PinnedVersion)
		return
	}
	folder := filepath.Dir(l.RuntimePath)
	for _, file := range provider {
		if !l.there(filepath.Join(folder, file)) {
			l.add("provider-missing", "file", file, "path", l.RuntimePath)
			return
		}
	}
	if !l.lookAtLibraries(filepath.Join(folder, provider[1])) || l.Try == nil {
		return
	}
	gpu := l.UUID
	if err := l.Try(ctx, gpu); err != nil {
		l.add("try-failed", "gpu", gpu, "why", err.Error())
		return
	}
	l.add("try", "gpu", gpu)
}

// lookAtLibraries checks the libraries of CUDA that the provider needs, and
// reports whether it can start with them.
func (l *looking) lookAtLibraries(file string) bool {
	list, err := l.Needs(l.path(file))
	if err != nil {
		l.add("provider-unreadable", "file", file, "why", err.Error())
		return true
	}
	major := cudaMajor(list)
	if err := cuda.Versions(l.Facts.Driver, l.Facts.CUDA, major); err != nil {
		l.add("versions", "why", err.Error())
		return false
	}
	if c := l.target.Device.Capability; major >= 13 && (c.Major < 7 || c.Major == 7 && c.Minor < 5) {
		l.add("capability", "gpu", fmt.Sprintf("GPU %d", l.target.Device.Index), "capability", c.String())
		return false
	}
	whole := true
	for _, name := range list {
		if p, ok := packageOf(name, major); ok && !l.found(name, filepath.Dir(file)) {
			l.add("library-missing", "library", name, "package", p.debian, "wheel", p.wheel)
			whole = false
		}
	}
	for _, late := range lateLibraries(major) {
		if p, _ := packageOf(late.name, major); !slices.Contains(list, late.name) && !l.found(late.name, filepath.Dir(file)) {
			l.add("library-late", "library", late.name, "without", late.without, "package", p.debian, "wheel", p.wheel)
			whole = false
		}
	}
	if whole {
		l.add("provider", "major", fmt.Sprint(major))
	}
	return whole
}

// needs returns the libraries that an ELF file is linked with.
func needs(path string) ([]string, error) {
	f, err := elf.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return f.ImportedLibraries()
}

// cudaMajor returns the major version of CUDA that libraries belong to, 0 if unknown.
func cudaMajor(list []string) int {
	for _, name := range list {
		for _, prefix := range []string{"libcudart.so.", "libcublas.so."} {
			if rest, ok := strings.CutPrefix(name, prefix); ok {
				first, _, _ := strings.Cut(rest, ".")
				n, _ := strconv.Atoi(first)
				return n
			}
		}
	}
	return 0
}

// late is a library that is loaded when an operator needs it.
type late struct{ name, without string }

func lateLibraries(major int) []late {
	fft := map[int]string{12: "libcufft.so.11", 13: "libcufft.so.12"}[major]
	list := []late{{"libcudnn.so.9", "convolutions and normalisations fail without it"}}
	if fft != "" {
		list = append(list, late{fft, "Fourier transforms fail without it"})
	}
	return append(list, late{"libnvrtc.so." + fmt.Sprint(major), "cuDNN cannot build some of its kernels without it"})
}

// found looks for a library in the places of the system's loader: beside the runtime,
// in LD_LIBRARY_PATH, and in the folders of ldconfig's configuration.
func (l *looking) found(name, beside string) bool {
	folders := append([]string{beside}, l.LibraryPath...)
	folders = append(folders, l.configured("/etc/ld.so.conf", 0)...)
	folders = append(folders, "/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64", "/usr/lib64", "/lib", "/usr/lib")
	return slices.ContainsFunc(folders, func(folder string) bool { return l.there(filepath.Join(folder, name)) })
}

// includesMax bounds how deep files of ldconfig include each other.
const includesMax = 4

// configured returns the folders that a file of ldconfig names.
func (l *looking) configured(file string, depth int) (folders []string) {
	text, err := os.ReadFile(l.path(file))
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
			files, _ := filepath.Glob(l.path(pattern)) // a bad pattern includes nothing
			for _, f := range files {
				folders = append(folders, l.configured(strings.TrimPrefix(f, strings.TrimSuffix(l.path("/"), "/")), depth+1)...)
			}
		default:
			folders = append(folders, fields[0])
		}
	}
	return folders
}

// source names the packages that have a library of CUDA, of NVIDIA's repository for
// Debian 12 and of PyPI.
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

// versionsOf are the versions of CUDA in the names of packages. A later one of the same
// major version does as well.
var versionsOf = map[int]string{12: "12-8", 13: "13-0"}

// packageOf returns the source of a library, false for one that is not of CUDA.
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
