package loop

import (
	"runtime"
	"testing"
	"time"

	"github.com/overlapd/overlapd/daemon/query"
)

// A process has one processor while that suffices, and one more where that is worth it.
func TestBreadthFollowsUse(t *testing.T) {
	type step struct {
		g    gauge
		want int
	}
	for what, steps := range map[string][]step{
		"one suffices":                 {{gauge{0.3, 100}, 1}, {gauge{0.85, 300}, 1}, {gauge{}, 1}},
		"two answer more":              {{gauge{0.95, 300}, 2}, {gauge{1.9, 400}, 3}, {gauge{2.2, 450}, 3}},
		"two cost no more":             {{gauge{0.95, 300}, 2}, {gauge{0.98, 305}, 2}},
		"nobody asks":                  {{gauge{0.99, 0}, 2}, {gauge{1, 0}, 2}, {gauge{0.1, 0}, 1}},
		"less comes":                   {{gauge{0.95, 300}, 2}, {gauge{1.2, 400}, 2}, {gauge{0.8, 300}, 1}},
		"there are no more than three": {{gauge{1, 1}, 2}, {gauge{2, 2}, 3}, {gauge{3, 3}, 3}},
		"two are worse":                {{gauge{0.95, 300}, 2}, {gauge{1.7, 310}, 1}, {gauge{0.95, 300}, 1}},
	} {
		b := breadth{most: 3}
		b.width.Store(1)
		for i, s := range steps {
			n := b.next(time.Duration(i)*breadthPause, s.g)
			if n != s.want {
				t.Errorf("%s: %d processors after step %d, want %d", what, n, i, s.want)
			}
			b.width.Store(int32(n))
		}
	}
}

// What was tried in vain is tried again, more and more rarely.
func TestBreadthTriesAgain(t *testing.T) {
	b := breadth{most: 2}
	b.width.Store(1)
	var tried []time.Duration
	for now := breadthPause; now < 5*time.Minute; now += breadthPause {
		g := gauge{0.95, 300}
		if b.width.Load() == 2 {
			g = gauge{1.9, 300}
			tried = append(tried, now)
		}
		b.width.Store(int32(b.next(now, g)))
	}
	if len(tried) < 8 || len(tried) > 12 {
		t.Fatalf("it was tried %d times: %v", len(tried), tried)
	}
	if first, last := tried[1]-tried[0], tried[len(tried)-1]-tried[len(tried)-2]; first > 2*trialPause || last < trialPauseMax {
		t.Errorf("first after %v, and at last after %v", first, last)
	}
}

// A process whose width, or what keeps it from another, is wrong finds the right one
// within 10 s, under a load that never pauses.
func TestBreadthHeals(t *testing.T) {
	worse := []gauge{{}, {1, 44_000}, {1.9, 17_500}} // what two processors lose to waking threads
	better := []gauge{{}, {1, 20_000}, {1.9, 38_000}}
	for what, c := range map[string]struct {
		load  []gauge
		width int
		trial *gauge
		pause time.Duration
		want  int
	}{
		"two were kept as the load began":       {worse, 2, &gauge{0.95, 4_400}, 0, 1},
		"nobody knows why there are two":        {worse, 2, nil, 0, 1},
		"two were tried while the host stalled": {better, 2, &gauge{1, 200_000}, 0, 2},
		"two were in vain for another load":     {better, 1, nil, trialPauseMax, 2},
		"one is right":                          {worse, 1, nil, 0, 1},
		"two are right":                         {better, 2, nil, 0, 2},
	} {
		b := breadth{most: 2, trial: c.trial, before: 1, wider: verdict{under: gauge{1, 100}, pause: c.pause}}
		b.width.Store(int32(c.width))
		right := 0
		for now := breadthPause; now <= 15*time.Second; now += breadthPause {
			b.width.Store(int32(b.next(now, c.load[b.width.Load()])))
			if now > 10*time.Second && int(b.width.Load()) == c.want {
				right++
			}
		}
		if right < 45 {
			t.Errorf("%s: %d processors in %d of 50 looks after 10 s", what, c.want, right)
		}
	}
}

// Long work and large tensors get all processors at once, and the rule does not take them
// away meanwhile.
func TestBreadthOfLongWork(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
	b := breadth{most: 2}
	b.set(1)
	awaitProcessors(t, 1)
	release, second := b.hold(), b.hold()
	awaitProcessors(t, 2)
	release()
	b.set(1)
	awaitProcessors(t, 2)
	second()
	awaitProcessors(t, 1)

	small := &query.Call{Memory: query.Memory{Bytes: make([]byte, largeBytes-1)}}
	text := &query.Call{TextBytes: largeBytes/textCost - 1}
	b.large(time.Second, small, largeBytes-1)
	b.large(time.Second, text, largeBytes/textCost-1)
	if b.width.Load() != 1 {
		t.Error("a tensor that is not large has all processors used")
	}
	large := &query.Call{Memory: query.Memory{Bytes: make([]byte, largeBytes)}}
	for i, of := range []func(){
		func() { b.large(0, large, 0) },
		func() { b.large(0, small, largeBytes) },
		func() { b.large(0, text, largeBytes/textCost) },
		func() { b.large(time.Second, &query.Call{TextBytes: largeBytes / textCost}, 0) },
	} {
		b.set(1)
		if of(); b.width.Load() != 2 {
			t.Errorf("large tensor %d has not all processors used", i)
		}
	}
	awaitProcessors(t, 2)
	if n := b.next(time.Second+largeTime-1, gauge{}); n != 2 {
		t.Errorf("%d processors are left while large tensors may come", n)
	}
	if n := b.next(time.Second+largeTime, gauge{}); n != 1 {
		t.Errorf("%d processors are left when none comes any more", n)
	}

	var untouched breadth
	untouched.look(time.Hour, 1)
	untouched.large(time.Hour, large, 0)
	untouched.hold()()
	awaitProcessors(t, 2)
}

func awaitProcessors(t *testing.T, want int) {
	t.Helper()
	for end := time.Now().Add(time.Minute); runtime.GOMAXPROCS(0) != want; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d processors are used, want %d", runtime.GOMAXPROCS(0), want)
		}
	}
}
