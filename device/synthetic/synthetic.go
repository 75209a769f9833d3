// Package synthetic holds a device that is made of formulas, a GPU that nobody has, and
// a predictor that was trained on groups which ran on it. They let everybody try what
// the scheduler does, without a GPU and without measurements, and are never to be taken
// for either.
//
// A test of the package makes the device from what the operators of five models of the
// zoo compute and move, and compares; docs/device.md has the formulas.
package synthetic

import (
	"bytes"
	_ "embed" // of both files

	"github.com/overlapd/overlapd/device"
	"github.com/overlapd/overlapd/predictor"
)

var (
	//go:embed gpu.device.json
	deviceFile []byte

	//go:embed gpu.predictor.json
	predictorFile []byte
)

// Device returns the profile of the device.
func Device() *device.Profile {
	p, err := device.Read(bytes.NewReader(deviceFile))
	if err != nil {
		panic(err) // it is part of the program
	}
	return p
}

// Predictor returns a predictor of groups of up to three of its models.
func Predictor() *predictor.File {
	f, err := predictor.Read(bytes.NewReader(predictorFile))
	if err != nil {
		panic(err) // it is part of the program
	}
	return f
}
