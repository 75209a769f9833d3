package driver

/*
#include "library.h"
*/
import "C"

import (
	"fmt"
	"strconv"
	"strings"
	"unsafe"
)

// Device is a GPU or MIG instance that this process sees.
type Device struct {
	Ordinal      int    // among those that are visible, which CUDA_VISIBLE_DEVICES decides
	UUID         string // without the prefix "GPU-" or "MIG-", which the driver does not tell apart
	Name         string
	Major, Minor int   // compute capability
	TotalBytes   int64 // memory
	device       C.cu_device
}

// Capability returns the compute capability, such as "9.0".
func (d Device) Capability() string { return fmt.Sprintf("%d.%d", d.Major, d.Minor) }

// Devices returns the GPUs and MIG instances that this process sees.
func (l *Library) Devices() ([]Device, error) {
	var n C.int
	if err := check("cuDeviceGetCount", C.overlapd_cuda_device_count(l.table, &n)); err != nil {
		return nil, err
	}
	devices := make([]Device, n)
	for i := range devices {
		var d C.struct_overlapd_device
		if err := check("describe GPU "+strconv.Itoa(i), C.overlapd_cuda_describe(l.table, C.int(i), &d)); err != nil {
			return nil, err
		}
		devices[i] = Device{
			Ordinal: i, UUID: uuid(C.GoBytes(unsafe.Pointer(&d.uuid[0]), 16)), Name: C.GoString(&d.name[0]),
			Major: int(d.major), Minor: int(d.minor), TotalBytes: int64(d.bytes), device: d.device,
		}
	}
	return devices, nil
}

func uuid(b []byte) string {
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// Find returns the device with this ordinal or UUID, "" for the first one. A
// UUID may have the prefix "GPU-" or "MIG-" and be cut short if one device only
// fits.
func (l *Library) Find(name string) (Device, error) {
	devices, err := l.Devices()
	if err != nil {
		return Device{}, err
	}
	var found []Device
	for _, d := range devices {
		if name == "" && d.Ordinal == 0 || d.named(name) {
			found = append(found, d)
		}
	}
	if len(found) == 1 {
		return found[0], nil
	}
	return Device{}, fmt.Errorf("%w: %q fits %d of %s; list them with nvidia-smi -L and check CUDA_VISIBLE_DEVICES",
		ErrNotFound, name, len(found), listed(devices))
}

func (d Device) named(name string) bool {
	if ordinal, err := strconv.Atoi(name); err == nil && len(name) < 4 {
		return ordinal == d.Ordinal
	}
	short := strings.TrimPrefix(strings.TrimPrefix(name, "GPU-"), "MIG-")
	return short != "" && strings.HasPrefix(d.UUID, strings.ToLower(short))
}

func listed(devices []Device) string {
	if len(devices) == 0 {
		return "no devices"
	}
	var names []string
	for _, d := range devices {
		names = append(names, fmt.Sprintf("%d (%s, %s)", d.Ordinal, d.Name, d.UUID))
	}
	return strings.Join(names, ", ")
}
