package watching

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/overlapd/overlapd/daemon/observe/timeline"
	"github.com/overlapd/overlapd/internal/cli"
	"github.com/overlapd/overlapd/internal/perfetto"
	"github.com/overlapd/overlapd/internal/report"
	"github.com/overlapd/overlapd/internal/textfile"
)

// traceOptions are the flags of trace, and the daemon that they name.
type traceOptions struct {
	target
	seconds float64
	out     string
	asJSON  bool
}

// traceCommand asks a daemon again and again for what is over, instead of having it record: the daemon
// remembers its last rounds anyway, and serves as if nobody traced.
func traceCommand() *cobra.Command {
	o := traceOptions{}
	cmd := &cobra.Command{
		Use:   "trace",
		Short: "Record the rounds of a running daemon for Perfetto",
		Long: `Trace records what a daemon runs for some seconds, as a Chrome trace. Use it to see
which operators ran together, and why a query was late. Open the file at
ui.perfetto.dev, which keeps it on your machine, or in chrome://tracing.

The trace has a row of rounds with predicted and measured times and the scheduler's
candidates and predictions; a row for each service with its operators and deadlines;
and the answered queries, with their arrival, their time in the queue, and an arrow to
the first operators that ran for them.

Ctrl-C ends a trace early; what was recorded until then is complete.`,
		Example: `  overlapd trace --seconds 5 > trace.json
  overlapd trace --seconds 30 --out trace.json --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := cli.Interruptible(cmd)
			defer stop()
			return o.run(ctx, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	o.flags(cmd)
	// Seconds are a plain number, as in other recorders of traces.
	f := cmd.Flags()
	f.Float64Var(&o.seconds, "seconds", 5, "how long to record")
	f.StringVarP(&o.out, "out", "o", "", "write the trace to this file instead of standard output")
	f.BoolVar(&o.asJSON, "json", false, "with --out: print one JSON object that describes the recording")
	return cmd
}

// run records and says how much was recorded, on standard error, since standard output may be the trace.
func (o *traceOptions) run(ctx context.Context, stdout, stderr io.Writer) error {
	// NaN is not above 0 either.
	if !(o.seconds > 0) || o.seconds > maxTraceSeconds {
		return fmt.Errorf("--seconds is %v: give more than 0 and at most %d", o.seconds, maxTraceSeconds)
	}
	// Two JSON documents on one output cannot be told apart.
	if o.asJSON && o.out == "" {
		return errors.New("--json describes the file of a trace: give --out FILE")
	}
	// First, so that no empty file is left where no daemon answers.
	s, err := askStatus(&o.target)
	if err != nil {
		return err
	}
	r := recorder{traced: traced{Device: s.Overview.Device}}
	// A trace that was cut short is closed, so that what it has can be read.
	record := func(to io.Writer) error {
		r.w = perfetto.NewWriter(to)
		err := r.record(ctx, &o.target, time.Duration(o.seconds*float64(time.Second)))
		return errors.Join(err, r.w.Close())
	}
	switch {
	case o.out != "":
		err = textfile.Create(o.out, record)
	case term.IsTerminal(int(os.Stdout.Fd())):
		err = errors.New("a trace is not for a terminal: write it to a file, overlapd trace --seconds 5 > trace.json")
	default:
		err = record(stdout)
	}
	if err != nil {
		return err
	}
	if o.asJSON {
		return report.WriteJSON(stdout, r.traced)
	}
	// What the daemon had forgotten is told, as its absence would look like an idle device.
	fmt.Fprintf(stderr, "%s and %s in %.1f s, %d missed; open the file at ui.perfetto.dev\n",
		report.Count(r.traced.Rounds, "round"), report.Count(r.traced.Queries, "query", "queries"), r.traced.Seconds, r.traced.Missed+r.traced.QueriesMissed)
	return nil
}

const (
	// tracePoll is short enough that the daemon forgets no round in between.
	tracePoll       = 100 * time.Millisecond
	maxTraceSeconds = 3600

	// Rows of a trace. Services count from traceServiceRow and traceArrivalRow.
	traceDevice     = 1
	traceRoundRow   = 1
	traceServiceRow = 2
	traceArrivalRow = 1000

	// tracedBatches is of how many batches a trace of a pool knows the device: those that
	// ran before get no arrows.
	tracedBatches = 1 << 16

	// arrivalMark is the duration of an arrival. It is not 0 because an arrow must
	// begin in a slice, and short because two slices of a row must not overlap.
	arrivalMark = time.Nanosecond
)

// traced counts what a trace holds. The daemon had forgotten what was missed.
type traced struct {
	Rounds        int     `json:"rounds"`
	Spans         int     `json:"spans"`
	Missed        uint64  `json:"missed"`
	Queries       int     `json:"queries"`
	QueriesMissed uint64  `json:"queries_missed"`
	Seconds       float64 `json:"seconds"`
	Device        string  `json:"device"`
}

// recorder writes the rounds and queries of a daemon into a trace. Those before
// since and queriesSince are written already. The first round began at from. The
// first named services have rows, which rows has by name. Further devices of a pool have
// rows of their own, as groups after the first; batches has the group that each ran in.
type recorder struct {
	w      *perfetto.Writer
	traced traced
	// epoch is when the daemon was started, which tells another daemon from the same one.
	epoch   time.Time
	from    time.Duration
	named   int
	rows    map[string]int
	devices []string
	batches map[uint64]int

	since, queriesSince uint64
}

// record writes what ends from now on, for some time or until ctx ends.
func (r *recorder) record(ctx context.Context, t *target, lasts time.Duration) error {
	begin := time.Now()
	p, err := askTimeline(t, noRounds)
	if err != nil {
		return err
	}
	r.epoch, r.since, r.rows, r.batches = p.Epoch, p.Next, map[string]int{}, map[uint64]int{}
	// Positions are taken before the time begins, so that nothing of it is missed.
	q, err := askQueries(t, timeline.Latest)
	if err != nil {
		return err
	}
	r.queriesSince = q.Next
	r.w.NameDevice(traceDevice, r.traced.Device)
	r.w.NameRow(traceDevice, traceRoundRow, "rounds")
	r.introduce(p.Services)
	// What ends during the last look belongs to the trace, too: it ran while the trace was recorded.
	ctx, cancel := context.WithTimeout(ctx, lasts)
	defer cancel()
	poll := time.NewTicker(tracePoll)
	defer poll.Stop()
	for last := false; !last; {
		select {
		case <-ctx.Done():
			last = true
		case <-poll.C:
		}
		if err := r.catchUp(t); err != nil {
			return err
		}
	}
	r.traced.Seconds = time.Since(begin).Seconds()
	return nil
}

// catchUp writes all that is new. It asks for queries before rounds, so that the
// rounds that the queries ran in are in the answer. Queries may have come before the
// trace began; those that are not over are not in it.
func (r *recorder) catchUp(t *target) error {
	var over []timeline.Query
	// An answer has so many at most, so it is asked until there are no more. Of queries so many are kept as
	// the daemon remembers itself.
	for more := true; more; {
		p, err := askQueries(t, r.queriesSince)
		if err != nil {
			return err
		}
		over = append(over, p.Queries...)
		r.traced.QueriesMissed += p.Missed
		r.queriesSince, more = p.Next, p.More && len(over) < timeline.Queries
	}
	for more := true; more; {
		p, err := askTimeline(t, r.since)
		if err != nil {
			return err
		}
		// Its rounds count from 1 again, and its times from another beginning.
		if !p.Epoch.Equal(r.epoch) {
			return fmt.Errorf("the daemon at %s was restarted: the trace ends there", t.base)
		}
		r.introduce(p.Services)
		for i := range p.Rounds {
			r.round(&p.Rounds[i])
		}
		r.traced.Missed += p.Missed
		r.since, more = p.Next, p.More
	}
	// Now that their rounds are written, arrows have somewhere to end.
	for i := range over {
		r.query(&over[i])
	}
	return nil
}

// introduce names the rows of services that are new, on all devices that have run a round.
func (r *recorder) introduce(services []timeline.Service) {
	for ; r.named < len(services); r.named++ {
		name := services[r.named].Name
		r.rows[name] = r.named
		for i := range max(1, len(r.devices)) {
			r.w.NameRow(traceDevice+i, traceServiceRow+r.named, name)
		}
		r.w.NameRow(traceDevice, traceArrivalRow+r.named, name+" arrivals")
	}
}

// deviceOf returns the group of rows of a device, which is named when it first runs a
// round.
func (r *recorder) deviceOf(name string) int {
	at := slices.Index(r.devices, name)
	if name == "" || at >= 0 {
		return traceDevice + max(at, 0)
	}
	// A device that runs nothing has no rows, so that a pool of many is still a picture of those that do.
	r.devices = append(r.devices, name)
	device := traceDevice + len(r.devices) - 1
	r.w.NameDevice(device, name)
	r.w.NameRow(device, traceRoundRow, "rounds")
	for service, row := range r.rows {
		r.w.NameRow(device, traceServiceRow+row, service)
	}
	return device
}

// round writes one round, its spans, and the deadlines of batches that end.
func (r *recorder) round(at *timeline.Round) {
	if r.traced.Rounds == 0 {
		r.from = at.Start
	}
	r.traced.Rounds++
	lasted, device := at.End-at.Start, r.deviceOf(at.Device)
	r.w.Slice(perfetto.Event{
		Name: fmt.Sprintf("round %d", at.Number), Kind: "round", At: at.Start, Device: device, Row: traceRoundRow,
		Args: map[string]any{
			"spans": len(at.Spans), "took_us": perfetto.Micros(at.Took), "planned": at.Planned,
			"predicted_us": perfetto.Micros(at.Predicted), "bound_us": perfetto.Micros(at.Bound),
			"headroom_us": perfetto.Micros(at.Headroom), "solo_us": perfetto.Micros(at.Solo),
			"asked_groups": at.Asked.Groups, "candidates": len(at.Candidates), "dropped": len(at.Dropped) + at.More,
		},
	}, lasted)
	// A flag where the round should have ended shows by eye how far off the prediction was.
	if at.Predicted > 0 {
		r.instant("predicted end", at.Start+at.Predicted, device, traceRoundRow, at.Number)
	}
	for i := range at.Spans {
		s := &at.Spans[i]
		r.traced.Spans++
		if s.Start == 0 && at.Device != "" {
			// A batch that was forgotten costs an arrow, and memory that grows would cost the trace.
			if len(r.batches) >= tracedBatches {
				clear(r.batches)
			}
			r.batches[s.Batch] = device
		}
		args := map[string]any{
			"of": s.Of, "size": s.Size, "seq_len": s.SeqLen, "queries": s.IDs, "status": s.Status, "round": at.Number,
			"took_us": perfetto.Micros(s.Took),
		}
		// Not every device has a clock of its own.
		if s.Device > 0 {
			args["device_us"] = perfetto.Micros(s.Device)
		}
		r.w.Slice(perfetto.Event{
			Name: fmt.Sprintf("batch %d [%d,%d)", s.Batch, s.Start, s.End), Kind: "span", At: at.Start, Device: device, Row: traceServiceRow + s.Service, Args: args,
		}, lasted)
		if s.Deadline > 0 && s.End == s.Of {
			r.instant(fmt.Sprintf("deadline of batch %d", s.Batch), s.Deadline, device, traceServiceRow+s.Service, at.Number)
		}
	}
}

// instant writes a moment, which Perfetto draws as a flag.
func (r *recorder) instant(name string, at time.Duration, device, row int, round uint64) {
	e := perfetto.Event{Name: name, Kind: "instant", At: at, Device: device, Row: row}
	if round > 0 {
		e.Args = map[string]any{"round": round}
	}
	r.w.Instant(e)
}

// query writes a query, its waiting, and an arrow from its arrival to its first span.
func (r *recorder) query(q *timeline.Query) {
	r.traced.Queries++
	i, ok := r.rows[q.Service]
	if !ok {
		return // of a service that was gone before the trace began
	}
	id := strconv.FormatUint(q.ID, 10)
	args := map[string]any{
		"id": q.ID, "batch": q.Batch, "size": q.Size, "result": q.Result, "deadline_us": perfetto.Micros(q.Deadline - q.Arrival),
		"left_us": perfetto.Micros(q.Deadline - q.End),
	}
	if q.Reason != "" {
		args["reason"] = q.Reason
	}
	// Queries of a service overlap, so they are ranges and not slices.
	e := perfetto.Event{Name: q.Service + " queries", Kind: "query", At: q.Arrival, Device: traceDevice, Row: traceServiceRow + i, Args: args}
	r.w.Range(e, id, q.End)
	// Only of a query that was late: the others have their slack in the arguments.
	if q.Deadline > q.Arrival && q.Deadline < q.End {
		r.instant("deadline of query "+id, q.Deadline, traceDevice, traceArrivalRow+i, 0)
	}
	arrival := perfetto.Event{Name: "query " + id, Kind: "arrival", At: q.Arrival, Device: traceDevice, Row: traceArrivalRow + i, Args: args}
	r.w.Slice(arrival, arrivalMark)
	// A query that never ran has no arrow.
	if q.Started == 0 {
		return
	}
	if q.Started > q.Arrival && q.Started < q.End {
		e.Name, e.Args = "waits", nil
		r.w.Range(e, id, q.Started)
	}
	if r.traced.Rounds == 0 || q.Started < r.from {
		return // the span where the arrow would end is not in the trace
	}
	first := arrival
	// Of a pool a query does not say where it ran; its batch does.
	if len(r.devices) > 0 {
		var known bool
		if first.Device, known = r.batches[q.Batch]; !known {
			return
		}
	}
	// A moment after the span began, so that the arrow ends in it.
	first.At, first.Row = q.Started+1, traceServiceRow+i
	r.w.Flow(arrival, first, id)
}
