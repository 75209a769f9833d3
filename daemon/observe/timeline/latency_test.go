package timeline

import (
	"testing"
	"time"
)

func TestRecent(t *testing.T) {
	var l latencies
	if r := l.recent(); r != (recent{}) {
		t.Errorf("of none: %+v", r)
	}
	for i := range 1000 { // the last are 745 to 1000 ms
		l.add(time.Duration(i+1)*time.Millisecond, i%4 != 0)
	}
	want := recent{Ended: window, Missed: window / 4, P50: 872 * time.Millisecond, P99: 998 * time.Millisecond, Max: time.Second}
	if r := l.recent(); r != want {
		t.Errorf("got %+v, want %+v", r, want)
	}
}
