package models

import (
	"fmt"
	"slices"
	"strings"
)

// partSeparator separates the parts of a device or share in the names below.
const partSeparator = ", "

// MeasuredAs returns the name under which a model's measurements are kept: the hash of its
// file and its share of the device. The share, such as the number of threads, is part of the
// name because operator times depend on it. Datasets, predictors and policies use this name
// to state which model they apply to.
func MeasuredAs(hash, share string) string { return hash + "/" + share }

// MeasuredOn returns the name of a device for measurements. It includes the version of ONNX
// Runtime, because operator times depend on it.
func MeasuredOn(device, runtime string) string {
	return device + partSeparator + "ONNX Runtime " + runtime
}

// ModelsDiffer returns the parts in which two names of [MeasuredAs] differ, in words: the
// model file, or parts of the share.
func ModelsDiffer(a, b string) (inA, inB string) {
	// Twelve hexadecimal digits are enough to tell hashes apart.
	const shown = 12
	parts := func(name string) []string {
		hash, share, shared := strings.Cut(name, "/")
		list := []string{fmt.Sprintf("model file %.*s", shown, hash)}
		if shared {
			list = append(list, strings.Split(share, partSeparator)...)
		}
		return list
	}
	return differ(parts(a), parts(b))
}

// DevicesDiffer returns the parts in which two names of [MeasuredOn] differ, in words, such as
// the cores or the version of ONNX Runtime.
func DevicesDiffer(a, b string) (inA, inB string) {
	return differ(strings.Split(a, partSeparator), strings.Split(b, partSeparator))
}

// differ returns the elements that are in only one of the lists. If one list contains the
// other, a difference would be empty on one side; differ then returns both lists in full.
func differ(a, b []string) (inA, inB string) {
	only := func(list, other []string) string {
		return strings.Join(slices.DeleteFunc(slices.Clone(list), func(part string) bool { return slices.Contains(other, part) }), partSeparator)
	}
	if inA, inB = only(a, b), only(b, a); inA == "" || inB == "" {
		return strings.Join(a, partSeparator), strings.Join(b, partSeparator)
	}
	return inA, inB
}
