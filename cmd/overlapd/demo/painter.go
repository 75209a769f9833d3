package demo

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/overlapd/overlapd/internal/cli"
)

// painter draws on a terminal in colours, and elsewhere without.
type painter struct {
	to      io.Writer
	picture *bufio.Writer // the same, for what is drawn character by character
	colours bool
	columns int
}

// Of a picture: what it begins with, when everything runs, and how long it is.
const (
	// laneFrom is late enough that queues are as they stay.
	laneFrom = time.Second
	laneTime = 150 * time.Millisecond
	// laneColumns is the most, and what there is without a terminal.
	laneColumns = 75
	laneName    = 16
)

// laneColours are a light and a dark one for each service, by the numbers of terminals
// with 256 colours, so that one batch can be told from the next.
var laneColours = [][2]int{{39, 32}, {208, 172}, {77, 71}}

func newPainter(to io.Writer) *painter {
	p := &painter{to: to, columns: laneColumns}
	// What is painted is our own, so that no character needs to be made harmless.
	if behind, terminal := cli.Behind(to); terminal {
		p.to = behind
		p.colours = os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
		if width := cli.Columns(to); width > 0 {
			p.columns = min(max(width-laneName-2, 10), laneColumns)
		}
	}
	p.picture = bufio.NewWriter(p.to)
	return p
}

// bold is for the one sentence to remember.
func (p *painter) bold(text string) string {
	if !p.colours {
		return text
	}
	return "\x1b[1m" + text + "\x1b[0m"
}

// lanes draws a row for each service, with what ran in the middle of each column.
func (p *painter) lanes(spans []span) {
	for i, s := range services {
		fmt.Fprintf(p.picture, "  %-*s", laneName-2, s.model)
		of := slices.DeleteFunc(slices.Clone(spans), func(d span) bool { return int(d.service) != i })
		for x := range p.columns {
			at := laneFrom + laneTime*time.Duration(2*x+1)/time.Duration(2*p.columns)
			ran := slices.IndexFunc(of, func(d span) bool { return d.start <= at && at < d.end })
			switch {
			case ran < 0:
				fmt.Fprint(p.picture, "·")
			case p.colours:
				fmt.Fprintf(p.picture, "\x1b[38;5;%dm█\x1b[0m", laneColours[i][ran%2])
			default:
				fmt.Fprint(p.picture, []string{"█", "▒"}[ran%2])
			}
		}
		fmt.Fprintln(p.picture)
	}
	fmt.Fprintf(p.picture, "%*s0 ms%*s\n", laneName, "", p.columns-4, laneTime)
}
