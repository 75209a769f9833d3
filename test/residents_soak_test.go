package test

import (
	"cmp"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

// How often models come and go.
const (
	residentCycles = "RESIDENT_CYCLES" // how many loads there are; without it, fewestCycles
	fewestCycles   = 24
	warmCycles     = 200 // after which memory is compared, if there are twice as many

	// cycleModels share memory for about half of them.
	cycleModels = 6
	cycleMemory = "70MiB"

	// leavesWithin is how soon after the last unload everything has been given back.
	leavesWithin = 10 * time.Second

	// leakBytes is what the daemon may grow by in a long run.
	leakBytes = 16 << 20
)

// TestModelsLeaveNothing loads and unloads models, by request and by eviction in turn, as often as
// RESIDENT_CYCLES says, and then unloads all: no process, descriptor, goroutine, file or memory is left.
func TestModelsLeaveNothing(t *testing.T) {
	t.Parallel()
	cycles, err := strconv.Atoi(cmp.Or(os.Getenv(residentCycles), strconv.Itoa(fewestCycles)))
	if err != nil {
		t.Fatalf("%s: %v", residentCycles, err)
	}
	c := onDemand(cycleModels, fmt.Sprintf("memory = %q\nlog_level = \"info\"", cycleMemory), "")
	c.dir = t.TempDir()
	p := serve(t, c)
	unload := func() {
		for i := range cycleModels {
			p.mustControl(fmt.Sprint("m", i), "unload")
		}
	}
	// The first load of a file optimizes it, and the first query opens connections.
	for i := range cycleModels {
		if a := p.infer(fmt.Sprint("m", i), identityQuery); a.Status != 200 {
			t.Fatal(a)
		}
	}
	unload()
	client.CloseIdleConnections()
	before, wrong := p.settled(nil, footprint{processes: map[string]usage{"daemon": {descriptors: 1 << 20, memfds: 1 << 20, threads: 1 << 20, resident: 1 << 40}}, goroutines: 1 << 20}, leavesWithin)
	if len(wrong) > 0 {
		t.Fatal(wrong)
	}
	files, had := countFiles(t, c.dir), p.residence().Overview.Memory.Loads
	t.Logf("before: %v, %d files", before, files)
	begin := time.Now()
	for i := 0; p.residence().Overview.Memory.Loads-had < cycles; i++ {
		model := i % cycleModels
		if i/cycleModels%2 == 0 {
			p.mustControl(fmt.Sprint("m", model), "load")
			p.mustControl(fmt.Sprint("m", model), "unload")
		} else if a := p.infer(fmt.Sprint("m", model), identityQuery); a.Status != 200 {
			t.Fatalf("query %d: %v", i, a)
		}
		if n := p.residence().Overview.Memory.Loads - had; n == warmCycles && cycles > 2*warmCycles {
			now, _ := p.footprint(nil)
			before.takeMemory(now)
		}
		if i%1000 == 999 {
			u := p.measured(p.cmd.Process.Pid)
			t.Logf("%v: %+v, %d loads", time.Since(begin).Round(time.Second), u, p.residence().Overview.Memory.Loads)
		}
	}
	took := time.Since(begin)
	unload()
	client.CloseIdleConnections()
	after, wrong := p.settled(nil, before, leavesWithin)
	for _, w := range wrong {
		t.Error(w)
	}
	r := p.residence()
	if m := r.Overview.Memory; m.Used != 0 || m.Evictions != m.Loads {
		t.Errorf("all models are unloaded: %+v", m)
	}
	if now := countFiles(t, c.dir); now > files {
		t.Errorf("%d files in the state folder, %d before", now, files)
	}
	if cycles > 2*warmCycles {
		if now, then := after.processes["daemon"].resident, before.processes["daemon"].resident; now > then+leakBytes {
			t.Errorf("the daemon takes %d MiB, %d before", now>>20, then>>20)
		}
	}
	t.Logf("%d loads in %v; after: %v", r.Overview.Memory.Loads-had, took.Round(time.Second), after)
}

// countFiles counts the files of a folder.
func countFiles(t *testing.T, dir string) (n int) {
	err := filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			n++
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}
