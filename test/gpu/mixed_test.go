package gpu

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/overlapd/overlapd/stats"
)

// mixedRow is how well the groups of a daemon are predicted that have a batch of one
// size, where several sizes are served.
type mixedRow struct {
	Size    int     `json:"size"`
	Changed bool    `json:"changed"` // the run before of that model had another size
	Groups  int     `json:"groups"`
	MAPE    float64 `json:"mape"`  // percent, the mean
	Ratio   float64 `json:"ratio"` // measured by predicted, the median
}

// loadMixed puts queries of two batch sizes on a daemon, each half of the work, and
// compares what the scheduler predicted with what was measured, as its log of decisions
// has it. Batches of several queries have sizes in between.
func (c *check) loadMixed(ctx context.Context) (err error) {
	both := c.bothSizes()
	if !c.mu.passed("profile") {
		return fmt.Errorf("%w: the groups that a predictor is made of", errNotMeasured)
	}
	// Targets leave time for the larger size, which would be dropped else.
	d, err := c.serve(ctx, served{services: c.services, policy: overlapping, log: true, patience: 2 * both[1]})
	if err != nil {
		return err
	}
	stop := sync.OnceValue(d.stop)
	defer func() { err = errors.Join(err, stop()) }()
	seconds := max(min(c.load/2, timeLeft(ctx)/2)-turnWarmup-turnSlack, leastTurn).Seconds()
	var wait sync.WaitGroup
	faults := make([]error, len(both))
	for i, batch := range both {
		sum := cmp.Or(c.work(batch), float64(batch)*c.work(1)) // pairs may not have measured this size
		rate := min(c.loadFactor*float64(len(c.services))*1000/sum, c.maxRate) / 2
		wait.Go(func() { _, faults[i] = c.put(ctx, []*serving{d}, batch, rate, seconds, seed+i) })
	}
	wait.Wait()
	if err := errors.Join(append(faults, stop())...); err != nil { // its log is whole once it has ended
		return err
	}
	logs, err := filepath.Glob(filepath.Join(d.dir, "decisions.log*"))
	if err != nil {
		return err
	}
	slices.Sort(logs)
	var pairs []predicted
	for _, path := range slices.Backward(logs) { // the oldest has the highest number
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		read, err := readDecisions(f)
		if err = errors.Join(err, f.Close()); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		pairs = append(pairs, read...)
	}
	for _, row := range bySize(pairs) {
		keep(c, &c.mu.Mixed, row)
	}
	return nil
}

// predicted is one group that a scheduler chose, and what it took.
type predicted struct {
	predicted, took time.Duration
	spans           []sized
}

type sized struct {
	service, size int
	changed       bool
}

// readDecisions reads a log of decisions, see docs/decision-log.md.
func readDecisions(log io.Reader) (pairs []predicted, err error) {
	chosen, last := map[uint64]*predicted{}, map[int]int{}
	lines := bufio.NewScanner(log)
	for lines.Buffer(nil, 64<<20); lines.Scan(); {
		var r struct {
			Event     string        `json:"e"`
			Round     uint64        `json:"round"`
			Predicted time.Duration `json:"predicted"`
			Took      time.Duration `json:"took"`
			Group     []struct {
				Service int `json:"sv"`
				Size    int `json:"n"`
			} `json:"g"`
			Spans []struct {
				Status string `json:"as"`
			} `json:"s"`
		}
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			return nil, err
		}
		switch {
		case r.Event == "next" && len(r.Group) > 0 && r.Round != 0:
			p := &predicted{predicted: r.Predicted}
			for _, g := range r.Group {
				before, known := last[g.Service]
				p.spans = append(p.spans, sized{g.Service, g.Size, known && before != g.Size})
				last[g.Service] = g.Size
			}
			chosen[r.Round] = p
		case r.Event == "finish" && chosen[r.Round] != nil:
			p := chosen[r.Round]
			delete(chosen, r.Round)
			p.took = r.Took
			whole := true // what was stopped on the way was not predicted so
			for _, s := range r.Spans {
				whole = whole && s.Status == "done"
			}
			if whole && p.predicted > 0 && p.took > 0 {
				pairs = append(pairs, *p)
			}
		}
	}
	return pairs, lines.Err()
}

// bySize sums groups up by the sizes of their batches, and by whether the size of a model
// changed. A group with several sizes counts for each of them.
func bySize(pairs []predicted) (rows []mixedRow) {
	type key struct {
		size    int
		changed bool
	}
	errs, ratios := map[key][]float64{}, map[key][]float64{}
	for _, p := range pairs {
		seen := map[key]bool{}
		for _, s := range p.spans {
			k := key{s.size, s.changed}
			if seen[k] {
				continue
			}
			seen[k] = true
			ratio := float64(p.took) / float64(p.predicted)
			errs[k], ratios[k] = append(errs[k], 100*math.Abs(1/ratio-1)), append(ratios[k], ratio)
		}
	}
	for k, list := range errs {
		rows = append(rows, mixedRow{Size: k.size, Changed: k.changed, Groups: len(list), MAPE: stats.Mean(list), Ratio: stats.Median(ratios[k])})
	}
	slices.SortFunc(rows, func(a, b mixedRow) int {
		return cmp.Or(a.Size-b.Size, map[bool]int{true: 1}[a.Changed]-map[bool]int{true: 1}[b.Changed])
	})
	return rows
}

// TestBySize: groups are found in a log of decisions, and a change of the batch size
// counts for the model whose size changed.
func TestBySize(t *testing.T) {
	pairs, err := readDecisions(strings.NewReader(`{"format":"overlapd-decisions/4"}
{"e":"next","t":1,"round":1,"predicted":100,"g":[{"sv":0,"b":1,"to":9,"n":1,"q":[1]}]}
{"e":"finish","t":2,"round":1,"took":110,"s":[{"b":1,"as":"done","to":9,"took":110}]}
{"e":"next","t":3,"round":2,"predicted":200,"g":[{"sv":0,"b":2,"to":9,"n":8,"q":[2]},{"sv":1,"b":3,"to":9,"n":8,"q":[3]}]}
{"e":"finish","t":4,"round":2,"took":400,"s":[{"b":2,"as":"done","to":9,"took":400},{"b":3,"as":"done","to":9,"took":300}]}
{"e":"next","t":5,"round":3,"predicted":100,"g":[{"sv":1,"b":4,"to":9,"n":8,"q":[4]}]}
{"e":"finish","t":6,"round":3,"took":50,"s":[{"b":4,"as":"stopped","to":4,"took":50}]}
{"e":"next","t":7}
`))
	if err != nil {
		t.Fatal(err)
	}
	want := []mixedRow{
		{Size: 1, Groups: 1, MAPE: 100 - 100/1.1, Ratio: 1.1},
		{Size: 8, Groups: 1, MAPE: 50, Ratio: 2},
		{Size: 8, Changed: true, Groups: 1, MAPE: 50, Ratio: 2},
	}
	got := bySize(pairs)
	if len(got) != len(want) {
		t.Fatalf("%+v", got)
	}
	for i, w := range want {
		g := got[i]
		if g.Size != w.Size || g.Changed != w.Changed || g.Groups != w.Groups || math.Abs(g.MAPE-w.MAPE) > 1e-9 || g.Ratio != w.Ratio {
			t.Errorf("%+v, want %+v", g, w)
		}
	}
}
