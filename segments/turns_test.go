package segments

import (
	"errors"
	"strings"
	"testing"
	"time"
)

func TestTakeTurns(t *testing.T) {
	var said strings.Builder
	say := func(what string) func() error {
		return func() error { said.WriteString(what); return nil }
	}
	a, b, err := TakeTurns(say("a"), say("b"), func(n int) bool { return n < 3 })
	if err != nil || said.String() != "abbaab" || len(a) != 3 || len(b) != 3 {
		t.Errorf("%s, %d and %d times, %v", said.String(), len(a), len(b), err)
	}
	broken := errors.New("broken")
	if _, _, err := TakeTurns(say("a"), func() error { return broken }, func(int) bool { return true }); !errors.Is(err, broken) {
		t.Error(err)
	}
}

func TestMedianTime(t *testing.T) {
	for want, times := range map[time.Duration][]time.Duration{0: nil, 3: {3}, 5: {9, 5, 1}, 7: {7, 1, 9, 2}} {
		if got := medianTime(times); got != want {
			t.Errorf("%v: %d", times, got)
		}
	}
}
