package demo

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/overlapd/overlapd/internal/cli"
	"github.com/overlapd/overlapd/models"
)

// On a terminal lanes are coloured, unless somebody wants none, and what runs is where it
// ran; elsewhere there are no control characters.
func TestLanes(t *testing.T) {
	spans := []span{
		{models.ServiceID(0), laneFrom, laneFrom + laneTime/2},
		{models.ServiceID(0), laneFrom + laneTime/2, laneFrom + time.Hour},
		{models.ServiceID(2), laneFrom + laneTime - laneTime/laneColumns, laneFrom + laneTime},
	}
	draw := func(terminal bool) []string {
		var b bytes.Buffer
		p := newPainter(&b)
		if terminal {
			p = newPainter(cli.Harmless(&b))
		}
		p.lanes(spans)
		if err := p.picture.Flush(); err != nil {
			t.Fatal(err)
		}
		return strings.Split(b.String(), "\n")
	}
	plain := draw(false)
	for i, want := range []string{
		"  resnet50      " + strings.Repeat("█", 37) + strings.Repeat("▒", 38), "  inception_v3  " + strings.Repeat("·", 75),
		"  bert          " + strings.Repeat("·", 74) + "█", "                0 ms" + strings.Repeat(" ", 66) + "150ms",
	} {
		if plain[i] != want {
			t.Errorf("%q, want %q", plain[i], want)
		}
	}
	t.Setenv("TERM", "xterm-256color")
	t.Setenv("NO_COLOR", "")
	if got := draw(true)[0]; strings.Count(got, "\x1b[38;5;39m█") != 37 || strings.Count(got, "\x1b[38;5;32m█") != 38 {
		t.Errorf("in colours: %q", got)
	}
	t.Setenv("NO_COLOR", "1")
	if got := draw(true)[0]; got != plain[0] {
		t.Errorf("%q with NO_COLOR", got)
	}
}
