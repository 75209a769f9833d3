package load

import (
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

const progressInterval = 200 * time.Millisecond

// showProgress draws a progress line until the function it returns is called.
func (r *run) showProgress() (stop func()) {
	out := r.options.Progress
	if f, ok := out.(*os.File); ok && !term.IsTerminal(int(f.Fd())) {
		out = nil
	}
	if out == nil {
		return func() {}
	}
	total := r.options.Warmup + r.options.Duration
	bar := progressbar.NewOptions64(total.Milliseconds(),
		progressbar.OptionSetWriter(out),
		progressbar.OptionSetElapsedTime(false),
		progressbar.OptionSetPredictTime(false),
		progressbar.OptionClearOnFinish(),
	)
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(progressInterval)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				r.step(bar)
			case <-done:
				_ = bar.Clear() // a terminal that is gone needs no clearing
				return
			}
		}
	})
	return func() { close(done); wg.Wait() }
}

// step moves the line to what the clock and the recorders say.
func (r *run) step(bar *progressbar.ProgressBar) {
	var requests, failed int64
	for _, s := range r.streams {
		n, bad := s.rec.counts()
		requests, failed = requests+n, failed+bad
	}
	bar.Describe(fmt.Sprintf("%d requests, %d errors", requests, failed))
	at := (r.clock.now() + r.options.Warmup).Milliseconds()
	_ = bar.Set64(min(max(at, 0), bar.GetMax64()-1)) // a full bar would end its line
}
