package journal_test

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/overlap"
	"github.com/overlapd/overlapd/overlap/journal"
)

// must returns v; nothing in the example fails.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// unknown predicts nothing, so that only deadlines count.
type unknown struct{}

func (unknown) Predict(_ []models.Group, estimates []models.Estimate) { clear(estimates) }

// A scheduler is driven through a Tee, which records it. Replay makes the same decisions again.
func Example() {
	dir := must(os.MkdirTemp("", "journal"))
	defer os.RemoveAll(dir)
	log := must(journal.Open(dir, journal.DefaultOptions()))
	s := must(journal.New(overlap.Config{
		Policy: "edf", Devices: []overlap.Predictor{unknown{}},
		Services: []models.Service{{Name: "image", Operators: 10, QoSTarget: time.Second, QueueLimit: 8, MaxBatch: 1}},
	}, log, journal.Header{Version: "1.0"}))

	s.Step(0, &overlap.Event{Kind: overlap.Arrive, Query: models.Query{ID: 1, Size: 1, Deadline: time.Second}})
	round := s.Ready(0).Round
	outcome := models.Outcome{Round: round.Number, Took: time.Millisecond, Spans: []models.SpanOutcome{{Span: round.Spans[0], Reached: 10}}}
	s.Step(time.Millisecond, &overlap.Event{Kind: overlap.Finish, Outcome: outcome})
	s.Ready(time.Millisecond)
	if err := log.Close(); err != nil {
		panic(err)
	}

	file := must(os.Open(filepath.Join(dir, journal.FileName)))
	defer file.Close()
	replayed := must(journal.Replay(file.Name(), file, func(*journal.Log, *journal.Record) bool { return true }))
	fmt.Println("the same decisions again:", replayed.Records, "records,", replayed.Rounds, "round")
	// Output:
	// the same decisions again: 4 records, 1 round
}
