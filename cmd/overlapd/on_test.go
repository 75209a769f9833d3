package main

import (
	"strings"
	"testing"

	"github.com/overlapd/overlapd/daemon/config"
)

func TestRunOn(t *testing.T) {
	for _, c := range []struct{ device, gpu, on, wantDevice, wantGPU, fault string }{
		{"auto", "", "", "auto", "", ""},
		{"auto", "", "cpu", "cpu", "", ""},
		{"cpu", "", "cpu", "cpu", "", ""},
		{"emulated", "", "cpu", "emulated", "", ""},
		{"emulated", "", "0", "emulated", "", ""},
		{"auto", "", "0", "cuda", "0", ""},
		{"cuda", "", "GPU-5c4b1a7e", "cuda", "GPU-5c4b1a7e", ""},
		{"auto", "1", "1", "cuda", "1", ""},
		{"auto", "GPU-5c4b1a7e-0000", "gpu-5c4b1a7e", "cuda", "GPU-5c4b1a7e-0000", ""},
		{"cuda", "GPU-5c4b1a7e", "1", "cuda", "GPU-5c4b1a7e", ""},
		{"cuda", "MIG-0f3e", "GPU-5c4b", "cuda", "MIG-0f3e", ""},
		{"cuda", "GPU-0f3e", "GPU-5c4b", "", "", `gpu = "GPU-0f3e": leave it out`},
		{"auto", "0", "1", "", "", `GPU 1, and the configuration has gpu = "0"`},
		{"cpu", "", "0", "", "", `device = "cpu": leave it out`},
		{"cuda", "", "cpu", "", "", "names a GPU"},
		{"auto", "3b:00", "cpu", "", "", "names a GPU"},
		{"auto", "", "vision", "auto", "", ""},
		{"cuda", "2", "vision", "cuda", "2", ""},
	} {
		config := config.Config{Device: c.device, GPU: c.gpu}
		err := runOn(&config, c.on)
		switch {
		case c.fault != "":
			if err == nil || !strings.Contains(err.Error(), c.fault) {
				t.Errorf("%+v: got %v", c, err)
			}
		case err != nil || config.Device != c.wantDevice || config.GPU != c.wantGPU:
			t.Errorf("%+v: got device %q, gpu %q, %v", c, config.Device, config.GPU, err)
		}
	}
}
