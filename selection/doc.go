// Package selection computes which variant of a service runs the next batch, given how many
// queries wait and how much time the most urgent of them has left (RAMSIS).
//
// A [Worker] is described by its variants, its target and what arrives; [Worker.Solve] finds
// the [Policy] with the largest mean accuracy of a query, where one that is late counts as 0,
// and [Worker.SolveSet] a [Set] of them for loads that change.
// The worker is a Markov decision process (sections 3 to 5): a state is a number of queries
// and the slack of the first of them, which is rounded down to a level; an action is the
// variant that answers all of them. Queries come from a central queue that is dealt out to
// workers in turn, so that a worker gets every K-th. (The approximation for the shortest queue
// in appendix I makes them come to a worker as a Poisson process, which they do not: played
// against it, policies made so were up to 3.7 points of accuracy worse and not what was expected.)
//
// All times are in milliseconds.
package selection

import (
	"errors"
	"fmt"
	"math"

	"github.com/overlapd/overlapd/stats"
)

// errWorker is wrapped by errors that say why there is no policy for a worker.
var errWorker = errors.New("no policy")

// Limits of a worker.
const (
	maxVariants = 1000
	maxQueue    = 128
	maxLevels   = 10_000
	maxWorkers  = 10_000
	maxArrivals = 20_000 // at the central queue within a target
)

// Variant is a model that can answer for a service.
type Variant struct {
	Name     string    `json:"name"`
	Hash     string    `json:"hash,omitempty"` // as [models.MeasuredAs] names the model; empty if unknown
	Accuracy float64   `json:"accuracy"`       // above 0, and more is better
	Latency  []float64 `json:"latency_ms"`     // of a batch of 1, 2 and so on, for as many as it may have
}

// Worker is one of several equal workers, and what comes to them.
type Worker struct {
	// Device is where latencies were measured, as [models.MeasuredOn] names it; empty if unknown.
	Device string `json:"device"`

	Variants []Variant `json:"variants"`
	Target   float64   `json:"target_ms"` // from a query's arrival to its answer
	Workers  int       `json:"workers"`   // among which the queries are dealt out in turn

	// Rate is queries a second for all workers together. CV is the coefficient of variation
	// of the time between two of them: 1 is a Poisson process. Above it they come in clusters:
	// the number within a time t is negative binomial, with the mean Rate·t and CV² times as
	// much variance, which is that of a renewal process with such a CV in the long run.
	Rate float64 `json:"-"`
	CV   float64 `json:"cv"`

	// Variable lets a batch have some of the queries only, instead of all (section 4.3.2). Drop
	// has a query that cannot be answered in time dropped, instead of answered late. Either
	// is for a Poisson process only.
	Variable bool `json:"variable,omitempty"`
	Drop     bool `json:"drop,omitempty"`

	Queue  int `json:"queue"`  // longest queue; queries beyond it are lost
	Levels int `json:"levels"` // of slack, equally far apart (FLD); 0 for one at each latency (MD)
}

// check says all that is wrong with a worker.
func (w *Worker) check() error {
	var faults []error
	bad := func(format string, args ...any) {
		faults = append(faults, fmt.Errorf("%w: "+format, append([]any{errWorker}, args...)...))
	}
	inside := func(v, least, most float64) bool { return v >= least && v <= most }
	switch n := len(w.Variants); {
	case n < 1 || n > maxVariants:
		bad("%d variants; give 1 to %d", n, maxVariants)
	case !inside(w.Target, 1e-3, 1e9):
		bad("a target of %v ms; give one from 0.001 to 1e9", w.Target)
	case !inside(float64(w.Workers), 1, maxWorkers):
		bad("%d workers; give 1 to %d", w.Workers, maxWorkers)
	case !inside(w.Rate, 1e-9, maxArrivals*1000/w.Target):
		bad("%v queries a second; give a number above 0 and at most %s, which is %d within a target", w.Rate, stats.Digits(4, maxArrivals*1000/w.Target), maxArrivals)
	case !inside(w.CV, 1, 100):
		bad("a coefficient of variation of %v; give one from 1 (a Poisson process) to 100", w.CV)
	case !inside(float64(w.Queue), 1, maxQueue):
		bad("a queue of %d; give one of 1 to %d", w.Queue, maxQueue)
	case (w.Variable || w.Drop) && w.CV > 1:
		bad("batches of a part of the queue, or dropping, with a coefficient of variation of %v; give 1, a Poisson process", w.CV)
	case !inside(float64(w.Levels), 0, maxLevels):
		bad("%d levels; give 1 to %d, or 0 for one at each latency", w.Levels, maxLevels)
	}
	longest := 0
	for _, v := range w.Variants[:min(len(w.Variants), maxVariants)] {
		longest = max(longest, len(v.Latency))
		if !inside(v.Accuracy, math.SmallestNonzeroFloat64, 1e12) {
			bad("variant %s has an accuracy of %v; give a number above 0", v.Name, v.Accuracy)
		}
		if len(v.Latency) == 0 {
			bad("variant %s has no latency; measure it", v.Name)
		}
		for i, l := range v.Latency {
			if !inside(l, 1e-6, 1e9) {
				bad("variant %s takes %v ms for a batch of %d; give a number above 0", v.Name, l, i+1)
				break
			}
		}
	}
	if len(w.Variants) > 0 && longest < w.Queue {
		bad("no variant has the latency of a batch of %d, the longest queue; give one, or a shorter queue", w.Queue)
	}
	return errors.Join(faults...)
}
