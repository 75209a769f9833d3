package segments

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/overlapd/overlapd/segments/wire"
)

// anonymous returns the memory of the process that no file holds, in bytes.
func anonymous(t *testing.T) int64 {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "RssAnon:")
	kib, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return kib << 10
}

// TestTrimReturnsMemory runs a batch that needs much memory: the engine keeps what it took for
// the next one until it is trimmed, and then runs that one all the same.
func TestTrimReturnsMemory(t *testing.T) {
	skipWithoutLibrary(t)
	const side, took = 1024, 64 << 20 // the intermediates of such an image
	e := loadTiny(t, wire.LoadSpec{Service: "images", ModelPath: convolutions().write(t), CacheDir: t.TempDir(), Threads: 1})
	large := images(t, side)
	defer thaw(large)
	operators := len(e.Info().Operators)
	run := func() {
		t.Helper()
		if err := e.Start(1, []wire.QueryTensors{large}); err != nil {
			t.Fatal(err)
		}
		if _, err := e.Run(1, 0, operators, 0, new(uint32), new(collect).take); err != nil {
			t.Fatal(err)
		}
	}
	run() // which teaches it the shapes
	e.Trim()
	for range 2 {
		before := anonymous(t)
		run()
		if held, grown := e.IntermediateBytes(), anonymous(t)-before; held < took || grown < took {
			t.Errorf("the engine holds %d MiB after a batch and the process grew by %d, want at least %d", held>>20, grown>>20, took>>20)
		}
		e.Trim()
		if held, left := e.IntermediateBytes(), anonymous(t)-before; held != 0 || left > took/4 {
			t.Errorf("after trimming the engine holds %d MiB and the process has %d more, want none", held>>20, left>>20)
		}
	}
}
