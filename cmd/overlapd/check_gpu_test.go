package main

import (
	"os"
	"slices"
	"testing"

	"github.com/overlapd/overlapd/cmd/overlapd/hostcheck"
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

// TestWantedOfGPU: each key of a configuration that concerns a GPU is looked at.
func TestWantedOfGPU(t *testing.T) {
	w := wantedOfGPU(parsed(t, `device = "cuda"
gpu = "1"
state_dir = "/state"
[mps]
mode = "existing"
dir = "/run/mps"
[mig]
owner = true
[[mig.instance]]
profile = "3g.40gb"
services = ["a", "b"]
`+twoServices))
	if !w.CUDA || w.GPU != "1" || w.Services != 2 || w.MPS != hostcheck.MPSExisting || w.MPSDir != "/run/mps" || w.Record != "/state/mig.json" {
		t.Errorf("%+v", w)
	}
	if !w.MIGOwner || len(w.MIG) != 1 || w.MIG[0].Profile != "3g.40gb" || !slices.Equal(w.MIG[0].Services, []string{"a", "b"}) {
		t.Errorf("%+v", w)
	}
	if w := wantedOfGPU(parsed(t, twoServices)); w.CUDA || w.MPS != hostcheck.MPSOwn || w.MIGOwner || len(w.MIG) > 0 || w.GPU != "" {
		t.Errorf("as it is: %+v", w)
	}
	if w := wantedOfGPU(parsed(t, "[mps]\nmode = \"off\"\n"+twoServices)); w.MPS != hostcheck.MPSOff {
		t.Errorf("without MPS: %+v", w)
	}
}

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

// TestOwnMPSDirIsLookedAt: check looks at the very directory in which the daemon
// would run MPS, also if the configuration names none.
func TestOwnMPSDirIsLookedAt(t *testing.T) {
	t.Setenv("RUNTIME_DIRECTORY", "/run/somewhere")
	for text, want := range map[string]string{"": "/run/somewhere/mps/GPU-01234567", "[mps]\ndir = \"/srv/mps\"\n": "/srv/mps/GPU-01234567"} {
		o := optionsOfCheck(parsed(t, text+twoServices), nil)
		if got := o.OwnMPSDir("GPU-0123456789"); got != want {
			t.Errorf("%q: it looks at %s, want %s", text, got, want)
		}
	}
}
