package child

import (
	"slices"
	"testing"
	"time"
)

func TestRestarts(t *testing.T) {
	const ms = time.Millisecond
	policy := Policy{BackoffMin: 10 * ms, BackoffMax: 50 * ms, HealthyAfter: time.Second, RestartLimit: 5, RestartWindow: time.Minute}
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
		r := Restarts{Policy: policy}
		var got []time.Duration
		for _, l := range c.losses {
			delay, again := r.Next(time.Unix(1000, 0).Add(l.at), l.readyFor)
			if !again {
				delay = refused
			}
			got = append(got, delay)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
		r.Forgive()
		if delay, again := r.Next(time.Unix(1000, 0), 0); !again || delay != 10*ms {
			t.Errorf("%s, forgiven: %v, %v", name, delay, again)
		}
	}
}
