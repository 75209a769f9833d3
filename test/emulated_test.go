package test

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
)

// A daemon on an emulated device is one process, answers every query of a crowd
// with zeros, and ends well in the middle of it.
func TestEmulatedDevice(t *testing.T) {
	t.Parallel()
	example := func(name string) string {
		path, err := filepath.Abs(filepath.Join("..", "docs", "examples", name))
		if err != nil {
			t.Fatal(err)
		}
		return path
	}
	c := config{dir: t.TempDir(),
		top: fmt.Sprintf("policy = \"overlap\"\ndevice = \"emulated\"\ndevice_profile = %q", example("synthetic.device.json")),
		tables: fmt.Sprintf("[predictor]\nfile = %q\n[decisions]\nlog = true",
			example("synthetic.predictor.json")),
		services: []service{{"cnn", "emulated:cnn", "max_batch = 16"}, {"encoder", "emulated:encoder", ""}},
	}
	p := serve(t, c)
	if all := p.processes(); len(all) != 1 {
		t.Errorf("processes %v, want the daemon alone", all)
	}
	p.reaches("serving")
	const enough = 16 // answers, and the daemon is told to stop
	var answered, refused atomic.Int64
	crowd(8, func(client int, random *rand.Rand) {
		for i := range fewer(20) {
			a := answer{}
			size := 1 + random.Int64N(16)
			if client%2 == 0 {
				a = p.inferBinary("cnn", query{Inputs: []tensor{rows("input", "FP32", random, size, 4)}})
			} else {
				a = p.inferBinary("encoder", query{Inputs: []tensor{rows("input", "INT64", random, size, 1+random.Int64N(128))}})
			}
			switch {
			case a.Status == 200 && len(a.Outputs) == 1 && fmt.Sprint(a.Outputs[0].Shape) == fmt.Sprint([]int64{size, 4}):
				if answered.Add(1) == enough {
					p.signal(syscall.SIGTERM)
				}
			case a.Status == 503 || a.Status == 0:
				refused.Add(1) // the daemon stops
			default:
				t.Errorf("query %d: %v", i, a)
			}
		}
	})
	if answered.Load() < enough {
		t.Errorf("%d answered, %d refused", answered.Load(), refused.Load())
	}
	if code := p.exit(); code != 0 {
		t.Errorf("exit status %d", code)
	}
	if log := p.logged(); !strings.Contains(log, "the device is emulated: nothing is computed") || strings.Contains(log, `"level":"error"`) {
		t.Errorf("the log:\n%s", log)
	}
	out, log, code := run(t, "replay", filepath.Join(c.dir, "decisions.log"))
	if code != 0 || strings.Contains(out, "NOT") || !strings.Contains(out, "reproduced: ") {
		t.Errorf("replay: %d\n%s%s", code, out, log)
	}
}
