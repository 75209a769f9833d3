package models

import (
	"fmt"
	"slices"
	"strings"
)

// partSeparator stands between the parts of what a measurement holds for.
const partSeparator = ", "

// MeasuredAs names a model that is measured: by the hash of its file and by its share of the
// device, such as its threads, which decides how long its operators take. Datasets, predictors
// and policies say by this name which model they hold for.
func MeasuredAs(hash, share string) string { return hash + "/" + share }

// MeasuredOn names a device on which models are measured, with the version of ONNX Runtime
// that ran them.
func MeasuredOn(device, runtime string) string {
	return device + partSeparator + "ONNX Runtime " + runtime
}

// ModelsDiffer returns in words the parts of two names of [MeasuredAs] that differ: the file,
// or which part of the share.
func ModelsDiffer(a, b string) (inA, inB string) {
	const shown = 12 // digits, by which people tell hashes apart
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

// DevicesDiffer returns in words the parts of two names of [MeasuredOn] that differ, such as
// the cores or the version of ONNX Runtime.
func DevicesDiffer(a, b string) (inA, inB string) {
	return differ(strings.Split(a, partSeparator), strings.Split(b, partSeparator))
}

// differ returns what is in one list and not in the other, or all of both where one of them
// only says more.
func differ(a, b []string) (inA, inB string) {
	only := func(list, other []string) string {
		return strings.Join(slices.DeleteFunc(slices.Clone(list), func(part string) bool { return slices.Contains(other, part) }), partSeparator)
	}
	if inA, inB = only(a, b), only(b, a); inA == "" || inB == "" {
		return strings.Join(a, partSeparator), strings.Join(b, partSeparator)
	}
	return inA, inB
}
