// Package selection computes which variant of a service runs the next batch, given the number of
// queued queries and the slack of the most urgent one (RAMSIS).
//
// A [Worker] describes the variants, the target and the arrivals. [Worker.Solve] finds the [Policy]
// with the largest mean accuracy of a query, where a late query counts as 0. [Worker.SolveSet]
// finds a [Set] of policies for loads that change.
//
// The worker is a Markov decision process (sections 3 to 5). A state is the number of queued
// queries and the slack of the first of them, rounded down to a level. An action is the variant
// that answers all of them. A central queue is dealt out to the workers in turn, so that a worker
// gets every K-th query.
//
// The approximation for the shortest queue in appendix I is not used. It assumes that queries reach
// a worker as a Poisson process, which they do not. Policies made with it and played against that
// queue were up to 3.7 points less accurate, and not as accurate as they predicted.
//
// All times are in milliseconds.
package selection

import (
	"errors"
	"fmt"
	"math"

	"github.com/overlapd/overlapd/internal/stats"
)

// errWorker is wrapped by errors that report why there is no policy for a worker.
var errWorker = errors.New("no policy")

// Limits of a worker. They bound the memory and the time that a policy takes.
const (
	maxVariants = 1000
	maxQueue    = 128
	maxLevels   = 10_000
	maxWorkers  = 10_000

	// maxArrivals is the most arrivals at the central queue within a target.
	maxArrivals = 20_000
)

// Variant is a model that can answer for a service.
type Variant struct {
	// Name identifies the variant within its service.
	Name string `json:"name"`

	// Hash identifies the model as [models.MeasuredAs] does. It is empty if unknown.
	Hash string `json:"hash,omitempty"`

	// Accuracy is above 0. Its unit is free, and a larger number is better.
	Accuracy float64 `json:"accuracy"`

	// Latency holds the latencies of batches of 1, 2 and so on, up to the largest batch that the
	// variant may run.
	Latency []float64 `json:"latency_ms"`
}

// Worker is one of several equal workers, and the load that they share.
type Worker struct {
	// Device is the device of the latencies, as [models.MeasuredOn] names it. It is empty if
	// unknown.
	Device string `json:"device"`

	// Variants are the models that the worker chooses from.
	Variants []Variant `json:"variants"`

	// Target is the longest allowed time from a query's arrival to its answer.
	Target float64 `json:"target_ms"`

	// Workers is the number of workers that queries are dealt out to in turn.
	Workers int `json:"workers"`

	// Rate is the queries a second for all workers together. CV is the coefficient of variation of
	// the time between two of them. 1 is a Poisson process. Above 1 queries come in clusters: their
	// number within a time t is negative binomial, with the mean Rate·t and CV² times the variance
	// of a Poisson process. In the long run a renewal process with that CV has the same variance.
	Rate float64 `json:"-"`
	CV   float64 `json:"cv"`

	// Variable allows batches of a part of the queued queries, instead of all (section 4.3.2). Drop
	// drops a query that cannot be answered in time, instead of answering it late. Both require a
	// Poisson process.
	Variable bool `json:"variable,omitempty"`
	Drop     bool `json:"drop,omitempty"`

	// Queue is the longest queue. Queries beyond it are lost.
	Queue int `json:"queue"`

	// Levels is the number of equally spaced levels of slack (FLD, section 4.2.2). 0 selects one
	// level for each latency (MD, section 4.2.1).
	Levels int `json:"levels"`
}

// check returns an error that lists all faults of a worker.
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
		bad("target of %v ms; give 0.001 to 1e9", w.Target)
	case !inside(float64(w.Workers), 1, maxWorkers):
		bad("%d workers; give 1 to %d", w.Workers, maxWorkers)
	case !inside(w.Rate, 1e-9, maxArrivals*1000/w.Target):
		bad("%v queries a second; give a number above 0 and at most %s, which is %d queries within the target", w.Rate, stats.Digits(4, maxArrivals*1000/w.Target), maxArrivals)
	case !inside(w.CV, 1, 100):
		bad("coefficient of variation of %v; give 1 (a Poisson process) to 100", w.CV)
	case !inside(float64(w.Queue), 1, maxQueue):
		bad("queue of %d queries; give 1 to %d", w.Queue, maxQueue)
	case (w.Variable || w.Drop) && w.CV > 1:
		bad("variable batches or dropping with a coefficient of variation of %v; give 1, a Poisson process", w.CV)
	case !inside(float64(w.Levels), 0, maxLevels):
		bad("%d levels of slack; give 1 to %d, or 0 for one at each latency", w.Levels, maxLevels)
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
		bad("no variant has a latency for a batch of %d, the longest queue; measure that batch or give a shorter queue", w.Queue)
	}
	return errors.Join(faults...)
}
