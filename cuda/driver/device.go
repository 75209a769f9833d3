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

// device is a GPU or MIG instance that this process sees.
type device struct {
	Ordinal int
	// UUID has no prefix "GPU-" or "MIG-", which the driver does not tell apart.
	UUID string
	Name string
	// Major and Minor are the compute capability.
	Major, Minor int
	// TotalBytes is the size of its memory.
	TotalBytes int64
	device     C.cu_device
}

// capability returns the compute capability, such as "9.0".
func (d device) capability() string { return fmt.Sprintf("%d.%d", d.Major, d.Minor) }

// devices returns the GPUs and MIG instances that this process sees.
func (l *Library) devices() ([]device, error) {
	var n C.int
	if err := check("cuDeviceGetCount", C.overlapd_cuda_device_count(l.table, &n)); err != nil {
		return nil, err
	}
	devices := make([]device, n)
	for i := range devices {
		var d C.struct_overlapd_device
		if err := check("describe GPU "+strconv.Itoa(i), C.overlapd_cuda_describe(l.table, C.int(i), &d)); err != nil {
			return nil, err
		}
		devices[i] = device{
			Ordinal: i, UUID: uuid(C.GoBytes(unsafe.Pointer(&d.uuid[0]), 16)), Name: C.GoString(&d.name[0]),
			Major: int(d.major), Minor: int(d.minor), TotalBytes: int64(d.bytes), device: d.device,
		}
	}
	return devices, nil
}

func uuid(b []byte) string {
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// find returns the device of a name as Retain takes it.
func (l *Library) find(name string) (device, error) {
	devices, err := l.devices()
	if err != nil {
		return device{}, err
	}
	var found []device
	for _, d := range devices {
		if name == "" && d.Ordinal == 0 || d.named(name) {
			found = append(found, d)
		}
	}
	if len(found) == 1 {
		return found[0], nil
	}
	return device{}, fmt.Errorf("%w: %q fits %d of %s; list them with nvidia-smi -L and check CUDA_VISIBLE_DEVICES",
		ErrNotFound, name, len(found), listed(devices))
}

func (d device) named(name string) bool {
	if ordinal, err := strconv.Atoi(name); err == nil && len(name) < 4 {
		return ordinal == d.Ordinal
	}
	short := strings.TrimPrefix(strings.TrimPrefix(name, "GPU-"), "MIG-")
	return short != "" && strings.HasPrefix(d.UUID, strings.ToLower(short))
}

func listed(devices []device) string {
	if len(devices) == 0 {
		return "no devices"
	}
	var names []string
	for _, d := range devices {
		names = append(names, fmt.Sprintf("%d (%s, %s)", d.Ordinal, d.Name, d.UUID))
	}
	return strings.Join(names, ", ")
}
