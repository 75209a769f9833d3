package cuda

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// ErrVersions is returned by Versions when driver and libraries do not fit.
var ErrVersions = errors.New("driver and CUDA do not fit together")

// version is a major and a minor number, of CUDA or of a compute capability.
type version struct {
	Major int `json:"major"`
	Minor int `json:"minor"`
}

func (v version) String() string { return fmt.Sprintf("%d.%d", v.Major, v.Minor) }

// cudaVersion reads the form in which NVML and the CUDA driver give theirs:
// 1000 × major + 10 × minor.
func cudaVersion(n int) version { return version{n / 1000, n % 1000 / 10} }

// leastDriver is the oldest branch of the Linux driver that runs programs of a
// CUDA major version, by the minor version compatibility of NVIDIA's CUDA
// toolkit release notes.
var leastDriver = map[int]int{11: 450, 12: 525, 13: 580}

// Versions checks whether a driver (as "580.65.06", with the newest CUDA it can
// run, zero if that is unknown) runs libraries built for a CUDA major version,
// which is what ONNX Runtime's provider was built for. The error, an
// ErrVersions, says which do not fit and what to install.
func Versions(driver string, runs version, wantMajor int) error {
	least, ok := leastDriver[wantMajor]
	if !ok {
		return fmt.Errorf("%w: nothing is known of CUDA %d; take an ONNX Runtime for CUDA 12 or 13", ErrVersions, wantMajor)
	}
	branch, err := driverBranch(driver)
	switch {
	case err != nil:
		return fmt.Errorf("%w: %w", ErrVersions, err)
	case branch < least:
		return fmt.Errorf("%w: ONNX Runtime wants CUDA %d, which needs driver %d or newer, and driver %s is loaded; %s",
			ErrVersions, wantMajor, least, driver, olderLibrary(branch, least))
	case runs != (version{}) && runs.Major < wantMajor:
		return fmt.Errorf("%w: ONNX Runtime wants CUDA %d, and driver %s says that it runs CUDA %s at most; install driver %d or newer and reboot, and remove a compatibility package that is older",
			ErrVersions, wantMajor, driver, runs, least)
	}
	return nil
}

// olderLibrary returns what to install for a driver of a branch.
func olderLibrary(branch, least int) string {
	remedy := fmt.Sprintf("install driver %d or newer and reboot", least)
	if branch >= leastDriver[12] && least > leastDriver[12] {
		remedy += ", or take an ONNX Runtime for CUDA 12"
	}
	return remedy
}

// driverBranch returns the first number of a driver version.
func driverBranch(driver string) (int, error) {
	first, _, _ := strings.Cut(driver, ".")
	branch, err := strconv.Atoi(first)
	if err != nil || branch <= 0 {
		return 0, fmt.Errorf("%q is no driver version such as 580.65.06; see nvidia-smi", driver)
	}
	return branch, nil
}
