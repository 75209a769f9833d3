package main

import (
	"os"
	"testing"

	"github.com/overlapd/overlapd/daemon/config"
)

func parsed(t *testing.T, text string) config.Config {
	t.Helper()
	c, err := config.Parse("/etc/overlapd/c.toml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

const twoServices = `
[[service]]
name = "a"
model = "zoo:tiny_cnn"
[[service]]
name = "b"
model = "zoo:tiny_mlp"
`

func TestMayUseGPU(t *testing.T) {
	for text, want := range map[string]bool{"": true, "device = \"cuda\"": true, "device = \"cpu\"": false} {
		if got := mayUseGPU(parsed(t, text+"\n"+twoServices)); got != want {
			t.Errorf("%q: %t", text, got)
		}
	}
}

// TestLookAtGPUs: without a GPU, auto is fine with that and cuda is not.
func TestLookAtGPUs(t *testing.T) {
	if _, err := os.Stat("/dev/nvidiactl"); err == nil {
		t.Skip("there is a GPU")
	}
	for text, fine := range map[string]bool{"": true, "device = \"cuda\"\n": false} {
		r := lookAtGPUs(t.Context(), parsed(t, text+twoServices), nil)
		if len(r.Findings) != 1 || (r.Err() == nil) != fine {
			t.Errorf("%q: %+v", text, r.Findings)
		}
	}
}
