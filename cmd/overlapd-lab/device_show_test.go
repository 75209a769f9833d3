package main

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/overlapd/overlapd/executor/emulated/device"
	"github.com/overlapd/overlapd/predictor"
)

var updateDevice = flag.Bool("update-device", false, "rewrite the golden files of devices")

func TestDeviceShowText(t *testing.T) {
	s := &shownProfile{
		Device: "A100", Seed: 3, Rows: 1234, Spans: 2,
		Models: []device.ModelInfo{
			{Name: "bert", Operators: 12, Sizes: []int{4, 8}, SeqLens: []int{8, 64}},
			{Name: "resnet50", Operators: 18, Sizes: []int{4, 8, 16}, SeqLens: []int{0}},
		},
		Solo: []device.SoloTime{
			{Model: "bert", Size: 4, SeqLen: 64, Micros: 11_000, Groups: 10_000}, {Model: "resnet50", Size: 1, Micros: 8_000},
		},
	}
	s.Test.Alone, s.Test.Several = predictor.Errors{Rows: 20, MAPE: 3.1}, predictor.Errors{Rows: 103, MAPE: 2.456}
	s.Test.Spread = []device.SpreadQuantiles{{Spans: 2, Rows: 103, Part: 0.5, Measured: 0.025, Predicted: 0.0261}}
	c := &s.Checks
	c.Free, c.Kept, c.Latency, c.Raised, c.RaisedMost, c.Repeated, c.RepeatedOf = 2.3, 2.4, 2.5, 7, 0.081, 2.9, 11
	var got bytes.Buffer
	if err := s.document().WriteText(&got); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join("testdata", "device_show.txt")
	if *updateDevice {
		if err := os.WriteFile(path, got.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got.String()); diff != "" {
		t.Errorf("-update-device accepts:\n%s", diff)
	}
}
