package driver

import (
	"strconv"
	"strings"
)

// Result is the error code of a failed driver call, as in CUresult. Errors of the CUDA
// runtime library have the same numbers if both have the error. Its text needs no
// library.
type Result int32

// The results that callers distinguish.
const (
	Success             Result = 0
	InvalidValue        Result = 1
	OutOfMemory         Result = 2
	Deinitialized       Result = 4
	MPSConnectionFailed Result = 805
	NotReady            Result = 600
	NoDevice            Result = 100
)

// results has the driver's name of each result, and a sentence for the user. After a
// semicolon the sentence says what to do; without one, remedy adds that.
var results = map[Result]struct{ name, sentence string }{
	Success:       {"CUDA_SUCCESS", "no error"},
	InvalidValue:  {"CUDA_ERROR_INVALID_VALUE", "an argument is outside of what the call accepts"},
	OutOfMemory:   {"CUDA_ERROR_OUT_OF_MEMORY", "the GPU has not enough free memory; lower max_batch, raise the service's pinned_memory_limit, or move a service elsewhere"},
	3:             {"CUDA_ERROR_NOT_INITIALIZED", "the driver was not initialized"},
	Deinitialized: {"CUDA_ERROR_DEINITIALIZED", "the driver is shutting down with the process"},
	46:            {"CUDA_ERROR_DEVICE_UNAVAILABLE", "the GPU is in use by another process in an exclusive compute mode; set it to DEFAULT, or to EXCLUSIVE_PROCESS with MPS"},
	NoDevice:      {"CUDA_ERROR_NO_DEVICE", "no GPU is visible; check nvidia-smi -L and CUDA_VISIBLE_DEVICES"},
	101:           {"CUDA_ERROR_INVALID_DEVICE", "there is no such GPU"},
	200:           {"CUDA_ERROR_INVALID_IMAGE", "a kernel is not made for this GPU"},
	201:           {"CUDA_ERROR_INVALID_CONTEXT", "no context is current, or it was destroyed"},
	208:           {"CUDA_ERROR_ALREADY_MAPPED", "the memory is mapped already"},
	209:           {"CUDA_ERROR_NO_BINARY_FOR_GPU", "ONNX Runtime holds no kernel for this GPU's compute capability; take a build that does"},
	214:           {"CUDA_ERROR_ECC_UNCORRECTABLE", "the GPU's memory has an error that cannot be corrected; reset or replace the GPU"},
	218:           {"CUDA_ERROR_INVALID_PTX", "a kernel could not be compiled for this GPU"},
	220:           {"CUDA_ERROR_NVLINK_UNCORRECTABLE", "NVLink has an error that cannot be corrected; reset the GPU"},
	222:           {"CUDA_ERROR_UNSUPPORTED_PTX_VERSION", "the driver is too old for a kernel; install the driver that belongs to this CUDA version"},
	300:           {"CUDA_ERROR_INVALID_SOURCE", "a kernel could not be loaded"},
	304:           {"CUDA_ERROR_OPERATING_SYSTEM", "a call of the operating system failed; check the permissions of /dev/nvidia*"},
	400:           {"CUDA_ERROR_INVALID_HANDLE", "a stream, event or context does not exist"},
	500:           {"CUDA_ERROR_NOT_FOUND", "the driver does not have what was asked for"},
	NotReady:      {"CUDA_ERROR_NOT_READY", "the GPU has not come that far"},
	700:           {"CUDA_ERROR_ILLEGAL_ADDRESS", "a kernel read or wrote memory that is not its own"},
	701:           {"CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "a kernel needs more registers or shared memory than the GPU has"},
	702:           {"CUDA_ERROR_LAUNCH_TIMEOUT", "a kernel ran longer than the display allows"},
	708:           {"CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE", "the context was made with other flags already"},
	709:           {"CUDA_ERROR_CONTEXT_IS_DESTROYED", "the context was destroyed"},
	710:           {"CUDA_ERROR_ASSERT", "a kernel stopped at an assertion"},
	712:           {"CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED", "the host memory is pinned already"},
	713:           {"CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED", "the host memory is not pinned"},
	714:           {"CUDA_ERROR_HARDWARE_STACK_ERROR", "a kernel damaged its stack"},
	715:           {"CUDA_ERROR_ILLEGAL_INSTRUCTION", "a kernel met an instruction that the GPU does not know"},
	716:           {"CUDA_ERROR_MISALIGNED_ADDRESS", "a kernel used an address that is not aligned"},
	717:           {"CUDA_ERROR_INVALID_ADDRESS_SPACE", "a kernel used memory of the wrong kind"},
	718:           {"CUDA_ERROR_INVALID_PC", "a kernel jumped to where there is no code"},
	719:           {"CUDA_ERROR_LAUNCH_FAILED", "a kernel failed; under MPS it may be one of another client"},
	800:           {"CUDA_ERROR_NOT_PERMITTED", "the operation is not permitted to this process"},
	801:           {"CUDA_ERROR_NOT_SUPPORTED", "this GPU or driver does not support the operation"},
	802:           {"CUDA_ERROR_SYSTEM_NOT_READY", "the system is not ready; check that nvidia-fabricmanager runs"},
	803:           {"CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "the kernel module and libcuda.so.1 are of different versions; reboot, or reload the module"},
	804:           {"CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE", "the compatibility package does not support this GPU; install the driver that belongs to this CUDA version"},

	MPSConnectionFailed: {"CUDA_ERROR_MPS_CONNECTION_FAILED", "the MPS control daemon does not answer; check CUDA_MPS_PIPE_DIRECTORY and that the daemon runs as the same user"},

	806: {"CUDA_ERROR_MPS_RPC_FAILURE", "the MPS server and this process lost each other"},
	807: {"CUDA_ERROR_MPS_SERVER_NOT_READY", "the MPS server is starting or recovering; try again"},
	808: {"CUDA_ERROR_MPS_MAX_CLIENTS_REACHED", "the MPS server has as many clients as it can serve; deploy fewer services on this GPU"},
	809: {"CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED", "the GPU has no hardware connection left for an MPS client; lower CUDA_DEVICE_MAX_CONNECTIONS or deploy fewer services"},
	810: {"CUDA_ERROR_MPS_CLIENT_TERMINATED", "the MPS server ended this client"},
	900: {"CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "the operation cannot be part of a CUDA graph"},
	999: {"CUDA_ERROR_UNKNOWN", "the driver does not say what failed; look at dmesg for an Xid"},
}

// Name returns the driver's own name of the result.
func (r Result) Name() string {
	if known, ok := results[r]; ok {
		return known.name
	}
	return "CUDA error"
}

func (r Result) Error() string {
	sentence := "see the list of CUresult in the CUDA driver's documentation"
	if known, ok := results[r]; ok {
		sentence = known.sentence
	}
	return r.Name() + " (" + strconv.Itoa(int(r)) + "): " + sentence + r.remedy(sentence)
}

// remedy returns what to do if the sentence does not say it.
func (r Result) remedy(sentence string) string {
	switch {
	case r == Success || strings.Contains(sentence, "; "):
		return ""
	case r.DeviceLost():
		return "; the worker is started again: if it fails again, look at dmesg for an Xid and at the logs of MPS"
	case r.Sticky():
		return "; the worker is started again: if it comes again, look at dmesg for an Xid"
	}
	return "; if it comes again, please report it with the log and the output of nvidia-smi -q"
}

// OutOfMemory reports whether the GPU ran out of memory. The context remains usable.
func (r Result) OutOfMemory() bool { return r == OutOfMemory }

// Sticky reports whether every later GPU call of this process will fail as well, so that
// only a new process helps.
func (r Result) Sticky() bool {
	switch r {
	case 700, 702, 710, 714, 715, 716, 717, 718, 719:
		return true
	}
	return r.DeviceLost()
}

// DeviceLost reports whether the GPU or the MPS server is gone. A new process may fail in
// the same way until an operator has fixed the cause.
func (r Result) DeviceLost() bool {
	switch r {
	case Deinitialized, 46, 201, 214, 220, 709, 802, MPSConnectionFailed, 806, 807, 810, 999:
		return true
	}
	return false
}
