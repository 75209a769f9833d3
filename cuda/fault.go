package cuda

import (
	"errors"
	"fmt"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// Errors that the errors of a Host wrap.
var (
	// ErrNoDriver is returned if the host has no NVML, or the kernel module is not
	// loaded.
	ErrNoDriver = errors.New("no NVIDIA driver")
	// ErrMismatch is returned if the kernel module and the libraries have different
	// versions, for example after an upgrade without a reboot.
	ErrMismatch = errors.New("NVIDIA kernel module and libraries differ")
	// ErrClosed is returned by a Host after Close.
	ErrClosed = errors.New("the NVML library is closed")
	// ErrLost is returned if a GPU no longer answers.
	ErrLost = errors.New("GPU is lost")
	// ErrReset is returned if a GPU must be reset before it can be used, or before a
	// change of its MIG mode takes effect. This package never resets a GPU.
	ErrReset = errors.New("GPU needs a reset")
	// ErrNotFound is returned if no device or instance has the name or ID.
	ErrNotFound = errors.New("not found")
	// ErrAmbiguous is returned if a shortened UUID matches several devices.
	ErrAmbiguous = errors.New("ambiguous name")
	// ErrPermission is returned if the user lacks the privileges for a call.
	ErrPermission = errors.New("no permission")
	// ErrUnsupported is returned if the device or the driver does not support a call.
	ErrUnsupported = errors.New("not supported")
	// ErrInUse is returned if processes or instances prevent a change.
	ErrInUse = errors.New("in use")
	// ErrResources is returned if a GPU or compute instance does not fit.
	ErrResources = errors.New("insufficient resources")
	// ErrDriver is returned for every other return code.
	ErrDriver = errors.New("driver error")
)

// fault is a return code of NVML other than success. It unwraps to one of the sentinel
// errors.
type fault struct {
	// Call is NVML's name of the function, such as "nvmlDeviceGetMigMode".
	Call string

	// Subject is the device or instance in question, or "".
	Subject string
	Code    nvml.Return
}

// Error names the call, the meaning of the return code, and the remedy. It does not call
// the library, which may be missing.
func (f *fault) Error() string {
	m := meaningOf(f.Code)
	about := ""
	if f.Subject != "" {
		about = " of " + f.Subject
	}
	return fmt.Sprintf("%s%s: %s (%s); %s", f.Call, about, m.means, m.name, m.remedy)
}

// Unwrap returns the sentinel error of the return code.
func (f *fault) Unwrap() error { return meaningOf(f.Code).is }

// fatal returns err if it concerns the whole device rather than a single reading, else
// nil.
func fatal(err error) error {
	var f *fault
	if !errors.As(err, &f) {
		return nil
	}
	switch f.Code {
	case nvml.ERROR_GPU_IS_LOST, nvml.ERROR_RESET_REQUIRED, nvml.ERROR_UNINITIALIZED, nvml.ERROR_DRIVER_NOT_LOADED,
		nvml.ERROR_LIB_RM_VERSION_MISMATCH, nvml.ERROR_GPU_NOT_FOUND, nvml.ERROR_IRQ_ISSUE:
		return err
	}
	return nil
}

// check returns a fault unless the call succeeded.
func check(code nvml.Return, call, subject string) error {
	if code == nvml.SUCCESS {
		return nil
	}
	return &fault{Call: call, Subject: subject, Code: code}
}

// meaning explains a return code. An error message joins means and remedy.
type meaning struct {
	code                nvml.Return
	name, means, remedy string
	is                  error
}

const reportIt = "if it comes again, please report it with the output of nvidia-smi -q"

// meanings has an entry for every return code in NVML's header.
var meanings = []meaning{
	{nvml.ERROR_UNINITIALIZED, "UNINITIALIZED", "the library was not initialised or is closed already",
		"restart overlapd; " + reportIt, ErrClosed},
	{nvml.ERROR_INVALID_ARGUMENT, "INVALID_ARGUMENT", "the driver does not accept the argument",
		"the device or instance may be gone or the driver too old; compare with nvidia-smi -L", ErrDriver},
	{nvml.ERROR_NOT_SUPPORTED, "NOT_SUPPORTED", "the device or its present mode does not support this",
		"nothing to do if the value is only shown; for MIG take a GPU that has it and enable MIG mode", ErrUnsupported},
	{nvml.ERROR_NO_PERMISSION, "NO_PERMISSION", "the user may not do this",
		"run overlapd as root, or leave the MIG layout to the administrator with owner = false in [mig]", ErrPermission},
	{nvml.ERROR_ALREADY_INITIALIZED, "ALREADY_INITIALIZED", "the library was initialised before",
		reportIt, ErrDriver},
	{nvml.ERROR_NOT_FOUND, "NOT_FOUND", "there is no such device or instance",
		"compare the name with nvidia-smi -L and nvidia-smi mig -lgi", ErrNotFound},
	{nvml.ERROR_INSUFFICIENT_SIZE, "INSUFFICIENT_SIZE", "the answer is longer than the buffer",
		"try again, for lists may have grown meanwhile; " + reportIt, ErrDriver},
	{nvml.ERROR_INSUFFICIENT_POWER, "INSUFFICIENT_POWER", "the GPU has too little power",
		"attach all power cables of the card", ErrDriver},
	{nvml.ERROR_DRIVER_NOT_LOADED, "DRIVER_NOT_LOADED", "the NVIDIA kernel module is not loaded",
		"load it with modprobe nvidia, or install the driver for this kernel (version 580 or newer for CUDA 13) and reboot", ErrNoDriver},
	{nvml.ERROR_TIMEOUT, "TIMEOUT", "the driver did not answer in time",
		"look for Xid messages in the kernel log (dmesg) and try again", ErrDriver},
	{nvml.ERROR_IRQ_ISSUE, "IRQ_ISSUE", "the kernel has a problem with the GPU's interrupts",
		"look at the kernel log (dmesg) and reboot", ErrDriver},
	{nvml.ERROR_LIBRARY_NOT_FOUND, "LIBRARY_NOT_FOUND", "libnvidia-ml.so.1 was not found",
		"install the NVIDIA driver (version 580 or newer for CUDA 13); in a container, run it with the NVIDIA container toolkit", ErrNoDriver},
	{nvml.ERROR_FUNCTION_NOT_FOUND, "FUNCTION_NOT_FOUND", "the installed driver does not have this call",
		"install a newer driver (version 580 or newer for CUDA 13)", ErrUnsupported},
	{nvml.ERROR_CORRUPTED_INFOROM, "CORRUPTED_INFOROM", "the card's infoROM is damaged",
		"see nvidia-smi -q; the card's maker has the tool to repair it", ErrDriver},
	{nvml.ERROR_GPU_IS_LOST, "GPU_IS_LOST", "the GPU has fallen off the bus or does not answer",
		"look for the Xid message in the kernel log (dmesg), stop what uses the GPU, then reset it (nvidia-smi --gpu-reset) or reboot", ErrLost},
	{nvml.ERROR_RESET_REQUIRED, "RESET_REQUIRED", "the GPU must be reset first",
		"stop what uses the GPU and run nvidia-smi --gpu-reset -i GPU, or reboot (in a virtual machine, reboot it)", ErrReset},
	{nvml.ERROR_OPERATING_SYSTEM, "OPERATING_SYSTEM", "the operating system keeps the device away, as by cgroups",
		"give the container or unit access to /dev/nvidiactl and /dev/nvidia*", ErrPermission},
	{nvml.ERROR_LIB_RM_VERSION_MISMATCH, "LIB_RM_VERSION_MISMATCH", "the loaded kernel module and the installed libraries are of different versions",
		"after an upgrade of the driver reload the modules (rmmod nvidia_uvm nvidia, then modprobe nvidia) or reboot", ErrMismatch},
	{nvml.ERROR_IN_USE, "IN_USE", "processes or instances are in the way",
		"see nvidia-smi and nvidia-smi mig -lci for what they are, stop them (monitoring such as dcgm counts, too) and try again", ErrInUse},
	{nvml.ERROR_MEMORY, "MEMORY", "the library ran out of memory",
		"free host memory and try again", ErrDriver},
	{nvml.ERROR_NO_DATA, "NO_DATA", "there is no value yet",
		"try again later", ErrUnsupported},
	{nvml.ERROR_VGPU_ECC_NOT_SUPPORTED, "VGPU_ECC_NOT_SUPPORTED", "the virtual GPU does not work with ECC on",
		"turn ECC off with nvidia-smi -e 0, or take a whole GPU", ErrUnsupported},
	{nvml.ERROR_INSUFFICIENT_RESOURCES, "INSUFFICIENT_RESOURCES", "there is no room for the instance",
		"see nvidia-smi mig -lgi and -lgip for what is taken and free, and ask for less or remove an instance", ErrResources},
	{nvml.ERROR_FREQ_NOT_SUPPORTED, "FREQ_NOT_SUPPORTED", "the clock frequency is not supported",
		"see nvidia-smi -q -d SUPPORTED_CLOCKS", ErrUnsupported},
	{nvml.ERROR_ARGUMENT_VERSION_MISMATCH, "ARGUMENT_VERSION_MISMATCH", "the driver knows another version of the argument",
		"install a newer driver (version 580 or newer for CUDA 13)", ErrUnsupported},
	{nvml.ERROR_DEPRECATED, "DEPRECATED", "the driver no longer has this call",
		"update overlapd, or install the driver version that its documentation names", ErrUnsupported},
	{nvml.ERROR_NOT_READY, "NOT_READY", "the driver or GPU is not ready yet",
		"try again in some seconds; with NVSwitch start nvidia-fabricmanager", ErrDriver},
	{nvml.ERROR_GPU_NOT_FOUND, "GPU_NOT_FOUND", "the driver sees no GPU",
		"see lspci -d 10de: and the kernel log (dmesg); in a container, hand it a GPU", ErrNotFound},
	{nvml.ERROR_INVALID_STATE, "INVALID_STATE", "the device is not in a state that allows this",
		"see nvidia-smi -q for the state, and try again", ErrDriver},
	{nvml.ERROR_RESET_TYPE_NOT_SUPPORTED, "RESET_TYPE_NOT_SUPPORTED", "the device cannot be reset in this way",
		"reboot", ErrUnsupported},
	{nvml.ERROR_UNKNOWN, "UNKNOWN", "the driver failed without saying why",
		"look for Xid messages in the kernel log (dmesg); " + reportIt, ErrDriver},
}

// meaningOf returns the entry of a return code. Codes of later drivers get a generic one.
func meaningOf(code nvml.Return) meaning {
	for _, m := range meanings {
		if m.code == code {
			return m
		}
	}
	return meaning{code, fmt.Sprintf("answer %d", int32(code)), "the driver answered with a code that this version does not know",
		"update overlapd; " + reportIt, ErrDriver}
}
