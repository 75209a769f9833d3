package reserve

import (
	"slices"
	"time"

	"github.com/overlapd/overlapd/models"
)

// Queue is the queue of a service with pipelines, and when its next batch is formed.
type Queue struct {
	Service *models.Service `json:"-"`

	// Waiting is the number of queries in the queue, and Head the most urgent one.
	Waiting int           `json:"-"`
	Head    *models.Query `json:"-"`

	// Size and Due are the size and the earliest deadline of all queries that may be in the next
	// batch with Head. Due is never for best effort.
	Size int           `json:"-"`
	Due  time.Duration `json:"-"`

	// Alone is set if Head runs in no batch with others, Suspect if it was in a batch that failed or
	// was lost, and Draining if no more queries come.
	Alone    bool `json:"-"`
	Suspect  bool `json:"-"`
	Draining bool `json:"-"`

	// SeqLen is the sequence length of the query that arrived last.
	SeqLen int `json:"-"`

	// Stale, Until and Queued say when the next batch is considered again: now, at a time, or with
	// that many queries in the queue.
	Stale  bool          `json:",omitempty"`
	Until  time.Duration `json:",omitempty"`
	Queued int           `json:",omitempty"`

	// Lead is the time from the reservation of the last batch to its end, 0 before the first.
	Lead time.Duration `json:",omitempty"`

	// Travel is the factor by which moves take longer than planned, 0 before the first move.
	Travel float64 `json:"-"`

	rivals []rival
}

// Wake returns when the next batch is considered again, with this many queries in the queue.
func (q *Queue) Wake(now time.Duration, waiting int) time.Duration {
	switch {
	case waiting == 0:
		return never
	case q.Stale || waiting >= q.Queued:
		return now
	}
	return q.Until
}

// Freed makes the next batch of a queue considered again if it may start on a device, which has
// become free.
func (t *Tables) Freed(q *Queue, device int) {
	q.Stale = q.Stale || t.reactive || slices.ContainsFunc(q.Service.Pipelines, func(p models.Pipeline) bool {
		return slices.Contains(p.Stages[0].Devices, device)
	})
}

// Largest returns the size of the largest batch of all pipelines.
func (q *Queue) Largest() (most int) {
	for p := range q.Service.Pipelines {
		most = max(most, q.largest(p))
	}
	return most
}

// smallest returns the size of the largest batch of the pipeline with the smallest batches.
func (q *Queue) smallest() int {
	least := q.largest(0)
	for p := range q.Service.Pipelines {
		least = min(least, q.largest(p))
	}
	return least
}

// largest returns the size of the largest batch of a pipeline.
func (q *Queue) largest(p int) int {
	return min(q.Service.Pipelines[p].Batch, max(q.Service.MaxBatch, 1))
}

// most returns the same for a batch with the most urgent query.
func (q *Queue) most(p int) int {
	if largest := q.largest(p); !q.Alone && q.Head.Size <= largest {
		return largest
	}
	return q.Head.Size
}

// travel returns the expected duration of a move to which each query adds a time.
func (q *Queue) travel(move time.Duration, size int) time.Duration {
	took := move * time.Duration(size)
	if q.Travel > 0 {
		took = time.Duration(q.Travel * float64(took))
	}
	return took
}

// Limits of the factor by which moves take longer than planned. If moves take twice as long, and this
// is not learned, the load factor of figure 10 (reproduce ppipe) is 0.61 instead of 0.78.
const (
	travelInertia = 8.0
	mostTravel    = 16.0
)

// Moved records how long the move of a batch of a size to its stage has taken.
func (t *Tables) Moved(q *Queue, w *Way, size int, took time.Duration) {
	planned := float64(w.Legs[w.Leg-1].Move) * float64(size)
	if planned <= 0 || took <= 0 || t.reactive {
		return
	}
	if q.Travel == 0 {
		q.Travel = 1
	}
	q.Travel += (min(float64(took)/planned, mostTravel) - q.Travel) / travelInertia
}

// rival is a stage of another service on a device on which a service has a stage, too.
type rival struct {
	queue            *Queue
	pipeline, device int
	start, end       int
}

// Share records which services have pipelines, and so which ones share devices. Their next batches
// are considered again, and all estimates are forgotten.
func (t *Tables) Share(queues []*Queue) {
	for _, q := range queues {
		q.Stale, q.Until, q.Queued, q.Lead, q.rivals = true, 0, 0, 0, q.rivals[:0]
		own := make([]bool, len(t.devices))
		q.stages(func(_, _ int, stage *models.Stage) {
			for _, device := range stage.Devices {
				own[device] = true
			}
		})
		for _, o := range queues {
			if o == q {
				continue
			}
			o.stages(func(p, start int, stage *models.Stage) {
				if at := slices.IndexFunc(stage.Devices, func(d int) bool { return own[d] }); at >= 0 {
					q.rivals = append(q.rivals, rival{o, p, stage.Devices[at], start, stage.End})
				}
			})
		}
	}
	clear(t.known)
}

// stages calls a function for each stage of each pipeline, with the operator that it starts with.
func (q *Queue) stages(each func(pipeline, start int, stage *models.Stage)) {
	for p := range q.Service.Pipelines {
		start, stages := 0, q.Service.Pipelines[p].Stages
		for k := range stages {
			each(p, start, &stages[k])
			start = stages[k].End
		}
	}
}
