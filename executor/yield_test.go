package executor

import (
	"os"
	"runtime"
	"testing"
)

// Who yields lets those run for whom something has arrived, even where there is one
// processor and goroutines can always run.
func TestYieldingLetsTheNetworkIn(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	y, err := newYielding()
	if err != nil {
		t.Fatal(err)
	}
	defer y.file.Close()
	for range 20 {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		read := make(chan error, 1)
		go func() {
			_, err := r.Read(make([]byte, 1))
			read <- err
		}()
		for range 3 {
			runtime.Gosched() // it waits by now
		}
		if _, err := w.Write([]byte{1}); err != nil {
			t.Fatal(err)
		}
		came := false
		for range 10 { // the race detector has goroutines run in any order
			y.last.Store(-int64(networkPause)) // as if the pause were over
			y.yield()
			select {
			case err := <-read:
				came = err == nil
			default:
			}
		}
		if !came {
			t.Error("who yielded had what has arrived wait")
		}
		r.Close()
		w.Close()
	}
}

// A file that is closed ends the wait of who yields.
func TestYieldingEnds(t *testing.T) {
	y, err := newYielding()
	if err != nil {
		t.Fatal(err)
	}
	y.file.Close()
	y.last.Store(-int64(networkPause))
	y.yield()
}
