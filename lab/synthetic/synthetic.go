// Package synthetic holds a device that was computed from formulas, and a predictor that was
// trained on groups run on it: [Device] and [Predictor]. The device is a GPU that does not
// exist. It lets anybody try the scheduler without a GPU and without measurements. Results on
// it say nothing about a real GPU.
//
// A test of the package computes the device from the operations and memory traffic of the
// operators of five zoo models, and compares it with the stored file. The formulas are in
// docs/device.md.
package synthetic

import (
	"bytes"
	_ "embed"

	"github.com/overlapd/overlapd/executor/emulated/device"
	"github.com/overlapd/overlapd/predictor"
)

var (
	//go:embed gpu.device.json
	deviceFile []byte

	//go:embed gpu.predictor.json
	predictorFile []byte
)

// Device returns the profile of the synthetic device.
func Device() *device.Profile {
	p, err := device.Read(bytes.NewReader(deviceFile))
	if err != nil {
		// The file is part of the program, so it is always valid.
		panic(err)
	}
	return p
}

// Predictor returns a predictor for groups of up to three models of the synthetic device.
func Predictor() *predictor.File {
	f, err := predictor.Read(bytes.NewReader(predictorFile))
	if err != nil {
		// The file is part of the program, so it is always valid.
		panic(err)
	}
	return f
}
