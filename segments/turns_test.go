package segments

import (
	"errors"
	"strings"
	"testing"
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
