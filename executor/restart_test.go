package executor

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/overlapd/overlapd/segments"
)

func TestRestarts(t *testing.T) {
	const ms = time.Millisecond
	opts := Options{BackoffMin: 10 * ms, BackoffMax: 50 * ms, HealthyAfter: time.Second, RestartLimit: 5, RestartWindow: time.Minute}
	type loss struct {
		at, readyFor time.Duration
	}
	const refused = -1
	for name, c := range map[string]struct {
		losses []loss
		want   []time.Duration
	}{
		"doubles up to the largest": {
			[]loss{{0, 0}, {1, 0}, {2, 999 * ms}, {3, 0}, {4, 0}},
			[]time.Duration{10 * ms, 20 * ms, 40 * ms, 50 * ms, 50 * ms},
		},
		"starts over once healthy": {
			[]loss{{0, 0}, {1, 0}, {2, time.Second}, {3, 0}},
			[]time.Duration{10 * ms, 20 * ms, 10 * ms, 20 * ms},
		},
		"limit within the window": {
			[]loss{{0, 0}, {1, 0}, {2, 0}, {3, 0}, {4, 0}, {5, time.Hour}},
			[]time.Duration{10 * ms, 20 * ms, 40 * ms, 50 * ms, 50 * ms, refused},
		},
		"losses out of the window are forgotten": {
			[]loss{{0, 0}, {1, 0}, {2, 0}, {3, 0}, {4, 0}, {61 * time.Second, 0}},
			[]time.Duration{10 * ms, 20 * ms, 40 * ms, 50 * ms, 50 * ms, 50 * ms},
		},
	} {
		r := restarts{opts: &opts}
		var got []time.Duration
		for _, l := range c.losses {
			delay, err := r.next(time.Unix(1000, 0).Add(l.at), l.readyFor, ErrExited)
			if errors.Is(err, ErrRestartLimit) {
				delay = refused
			}
			got = append(got, delay)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
		r.forgive()
		if delay, err := r.next(time.Unix(1000, 0), 0, ErrExited); err != nil || delay != 10*ms {
			t.Errorf("%s, forgiven: %v, %v", name, delay, err)
		}
	}
}

// A model that does not fit is not tried again, and one that found no memory a
// few times in a row; a worker that was ready in between starts the count over.
func TestNoRoom(t *testing.T) {
	opts := Options{BackoffMin: 1, BackoffMax: 1, HealthyAfter: time.Hour, RestartLimit: 100, RestartWindow: time.Minute}
	short := fmt.Errorf("%w: %w", ErrLoad, segments.ErrDeviceMemory)
	for name, c := range map[string]struct {
		causes []error
		ready  time.Duration
		tries  int // until it is given up, 0 for never
	}{
		"does not fit":            {[]error{fmt.Errorf("%w: %w", ErrLoad, segments.ErrDeviceFull)}, 0, 1},
		"no memory":               {[]error{short, short, short, short, short}, 0, memoryTries + 1},
		"no memory while serving": {[]error{short, short, short, short, short}, 1, 0},
		"other losses between":    {[]error{short, short, short, ErrExited, short, short, short}, 0, 0},
		"device lost":             {[]error{segments.ErrDeviceLost, segments.ErrDeviceLost, segments.ErrDeviceLost, segments.ErrDeviceLost, segments.ErrDeviceLost}, 0, 0},
	} {
		r, given := restarts{opts: &opts}, 0
		for i, cause := range c.causes {
			if _, err := r.next(time.Unix(1000, 0), c.ready, cause); errors.Is(err, ErrNoRoom) && given == 0 {
				given = i + 1
			}
		}
		if given != c.tries {
			t.Errorf("%s: given up after %d tries, want %d", name, given, c.tries)
		}
	}
}
