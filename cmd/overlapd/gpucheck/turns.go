package gpucheck

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/overlapd/overlapd/cmd/overlapd/load"
	"github.com/overlapd/overlapd/stats"
)

const (
	// turnWarmup is the part of a turn that does not count.
	turnWarmup = 500 * time.Millisecond

	// turnSlack is what a turn takes besides: connections, inputs, last answers.
	turnSlack = time.Second

	// giveUp is when the generator gives up on an answer, long after the deadline.
	giveUp = 2 * time.Second

	// indices is how many different integers requests hold, from 0: BERT has two
	// token types, and CUDA does not notice an index that is out of range.
	indices = 2

	// leastTurn is the shortest turn that tells anything.
	leastTurn = time.Second
)

// stateFile is what only one daemon may have open; all else may be shared.
const stateFile = "state.db"

// LoadSetting is the load that all policies get.
type LoadSetting struct {
	Rate     float64            `json:"rate_rps"` // all services together
	Offered  float64            `json:"offered"`  // work, in parts of what one batch after another can do
	Turn     float64            `json:"turn_seconds"`
	Rounds   int                `json:"rounds"` // turns of each policy
	TargetMS map[string]float64 `json:"target_ms"`
	AloneMS  map[string]float64 `json:"alone_ms"`
}

// Turn is what one policy made of the load for a short time.
type Turn struct {
	Round      int     `json:"round"`
	Policy     string  `json:"policy"`
	Requests   int64   `json:"requests"`
	Violations float64 `json:"violations"` // part of the requests: late, dropped and refused
	Goodput    float64 `json:"goodput_rps"`
	P50        float64 `json:"p50_over_target"` // of the answered, of the service that is worst off
	P99        float64 `json:"p99_over_target"`
	LagP99MS   float64 `json:"send_lag_p99_ms"` // if it is large, the generator was too slow

	Errors map[string]int64 `json:"errors"` // by reason
}

// PolicyResult is all turns of a policy.
type PolicyResult struct {
	Policy     string  `json:"policy"`
	Turns      int     `json:"turns"`
	Requests   int64   `json:"requests"`
	Violations float64 `json:"violations"`  // of all requests
	Goodput    float64 `json:"goodput_rps"` // median of the turns
	P99        float64 `json:"p99_over_target"`

	Errors map[string]int64 `json:"errors"` // by reason, among the violations
}

// loadPolicies puts the same load on a daemon of each policy, in short turns, so
// that whatever slows the machine down slows all of them. The daemons run all the
// time; those that have no turn have nothing to do.
func (c *check) loadPolicies(ctx context.Context) (err error) {
	if c.state == "" {
		return fmt.Errorf("%w: the groups that a predictor is made of", ErrNothing)
	}
	list, err := c.serveAll(ctx)
	defer func() {
		for _, d := range list {
			err = errors.Join(err, d.stop())
		}
		c.keep(func(r *Report) { r.Policies = sumUp(c.Policies, r.Turns) })
	}()
	if err != nil {
		return err
	}
	s := c.setting(timeLeft(ctx))
	c.keep(func(r *Report) { r.Load = &s })
	for round := range s.Rounds {
		for i, policy := range c.Policies {
			c.Progress(fmt.Sprintf("  turn %d of %d: %s", round+1, s.Rounds, policy))
			t, err := c.turn(ctx, list[i].url, &s, round)
			if err != nil {
				return fmt.Errorf("%s: %w", policy, err)
			}
			t.Policy = policy
			c.keep(func(r *Report) { r.Turns = append(r.Turns, t) })
		}
	}
	return nil
}

// serveAll starts a daemon for each policy, one after the other. Those that did
// start are returned with the error.
func (c *check) serveAll(ctx context.Context) (list []*daemon, err error) {
	for _, policy := range c.Policies {
		dir := filepath.Join(c.state, "policy-"+policy)
		if err := copyState(c.state, dir); err != nil {
			return list, err
		}
		config, err := c.writeConfig(dir)
		if err != nil {
			return list, err
		}
		c.Progress("  starting a daemon with " + policy)
		d, err := c.serve(ctx, config, policy)
		if err != nil {
			return list, fmt.Errorf("%s: %w", policy, err)
		}
		list = append(list, d)
	}
	return list, nil
}

// setting returns the load that fits into the time.
func (c *check) setting(left time.Duration) LoadSetting {
	s := LoadSetting{Rounds: 1, TargetMS: map[string]float64{}, AloneMS: map[string]float64{}}
	sum := 0.0
	for _, m := range c.Services {
		alone := c.alone(m.Name, 1)
		s.AloneMS[m.Name], s.TargetMS[m.Name] = alone, milliseconds(c.target(m.Name))
		sum += alone
	}
	n := float64(len(c.Services))
	s.Rate = min(c.LoadFactor*n*1000/sum, c.MaxRate)
	s.Offered = s.Rate / n * sum / 1000
	load := min(c.Load, left)
	turns := time.Duration(len(c.Policies))
	s.Rounds = max(int(load/(turns*c.Turn)), 1)
	turn := min(c.Turn, left/(turns*time.Duration(s.Rounds))-turnWarmup-turnSlack)
	s.Turn = max(turn, leastTurn).Seconds()
	return s
}

// turn puts the load on one daemon. All policies get the same arrivals in a round.
func (c *check) turn(ctx context.Context, url string, s *LoadSetting, round int) (Turn, error) {
	o := load.DefaultOptions()
	o.URL, o.Rate, o.Seed, o.SeqLen, o.MaxID, o.Timeout = url, s.Rate, c.Seed+uint64(round), c.SeqLen, indices, giveUp
	o.Warmup, o.Duration = turnWarmup, time.Duration(s.Turn*float64(time.Second))
	for _, m := range c.Services {
		o.Services = append(o.Services, m.Name)
	}
	r, err := load.Run(ctx, o)
	if err != nil {
		return Turn{}, err
	}
	if ctx.Err() != nil {
		return Turn{}, ctx.Err()
	}
	return newTurn(r, round), nil
}

func newTurn(r *load.Result, round int) Turn {
	t := Turn{Round: round, Requests: r.Requests, Violations: 1, Errors: r.Errors}
	if r.Goodput != nil {
		t.Goodput = *r.Goodput
	}
	if r.Requests > 0 {
		t.Violations = max(1-t.Goodput*r.Duration/float64(r.Requests), 0)
	}
	if r.SendLag != nil {
		t.LagP99MS = r.SendLag.P99
	}
	for _, s := range r.Services {
		if s.TargetMS > 0 {
			t.P50 = max(t.P50, s.Latency.P50/s.TargetMS)
			t.P99 = max(t.P99, s.Latency.P99/s.TargetMS)
		}
	}
	return t
}

// sumUp puts the turns of each policy together.
func sumUp(policies []string, turns []Turn) []PolicyResult {
	var list []PolicyResult
	for _, policy := range policies {
		p := PolicyResult{Policy: policy, Errors: map[string]int64{}}
		var goodput, p99 []float64
		for _, t := range turns {
			if t.Policy != policy {
				continue
			}
			p.Turns++
			p.Requests += t.Requests
			p.Violations += t.Violations * float64(t.Requests)
			for reason, n := range t.Errors {
				p.Errors[reason] += n
			}
			goodput, p99 = append(goodput, t.Goodput), append(p99, t.P99)
		}
		if p.Turns == 0 {
			continue
		}
		p.Violations /= float64(max(p.Requests, 1))
		p.Goodput, p.P99 = stats.Median(goodput), stats.Median(p99)
		list = append(list, p)
	}
	return list
}

// copyState gives a daemon a state folder of its own. Only the state file is
// copied: optimized models are never changed once they are there.
func copyState(from, to string) error {
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	if err := copyFile(filepath.Join(from, stateFile), filepath.Join(to, stateFile)); err != nil {
		return err
	}
	source := filepath.Join(from, "optimized")
	return filepath.WalkDir(source, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		target := filepath.Join(to, rel)
		switch {
		case d.IsDir():
			return os.MkdirAll(target, 0o755)
		case d.Type().IsRegular():
			return os.Link(path, target)
		}
		return nil
	})
}

func copyFile(from, to string) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}
