package overlap

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/overlapd/overlapd/models"
)

var update = flag.Bool("update", false, "write the decisions into testdata")

// TestScripts runs testdata/*.txt. A script is a row of blocks: commands, a
// line of four dashes, and what the scheduler decides, up to an empty line.
// Times are in milliseconds.
//
//	new policy=NAME explores=1 retries=N margin=PERCENT cut=MS ways=N devices=N
//	service NAME operators=N op=MS grow=PERCENT qos=MS queue=N batch=N ladder=1 besteffort=1 of=NAME accuracy=N
//	pipeline SERVICE END:DEVICE,DEVICE:MS … batch=N   stages, each query adding MS to the move after it
//	links LINK …                  of each device
//	alone DEVICE …                where groups have one span
//	select NAME                   the variant that the selector says, which tells what it is asked
//	overlap SERVICE SERVICE factor=F
//	at MS                         from here on
//	arrive ID SERVICE deadline=MS size=N seq=N shape=N priority=N accuracy=N fixed=1 alone=1
//	next                          the next round
//	plan                          the one after it, ahead
//	explain                       what was behind the last round
//	turneddown                    the groups that it did not become, with what speaks against each
//	plans                         how many were made, kept and overturned
//	finish SERVICE=done|stopped@N|lost|failed|crashed|overrun … on=DEVICE, that of the last round if not given
//	limit                         for how long the last round may run
//	land SERVICE=…                how the overrun of a service has ended
//	moved BATCH as=lost took=MS   the move of a batch has ended
//	ran                           something that is no round has run on the first device
//	restore                       goes on as its own snapshot
//	add NAME id=N …               a service as with service; N is the next ID if not given
//	change SERVICE … | remove SERVICE
//	cancel ID | down SERVICE on=DEVICE | up SERVICE on=DEVICE | drain | wake | idle | metrics SERVICE
//
// An operator takes op, and grow percent of that more for each further unit
// of batch size. finish takes spans that it does not name as done.
// Unless a script explores, who would be late by the estimate is dropped.
// The bound of an estimate is its latency and margin percent more. A span that starts in
// the middle takes the cut more. Two spans
// of services that overlap take the factor of their sum as long as both run.
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := runScript(t, string(text))
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if diff := cmp.Diff(string(text), got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// script is a scheduler and what drives it.
type script struct {
	t      *testing.T
	config Config
	costs  costs
	s      *Scheduler
	now    time.Duration
	round  Round
	rounds map[int]Round                       // the last one of each device
	apart  map[models.ServiceID]models.Outcome // the span of each overrun
	out    strings.Builder                     // of one block

	selected string
	explores bool
	moves    map[int]Move // by batch
}

// Select implements Selector.
func (c *script) Select(of string, waiting int, slack time.Duration) string {
	c.printf("select of %s: %d wait, slack %v", of, waiting, slack)
	return c.selected
}

// runScript returns the text with the decisions that were made now.
func runScript(t *testing.T, text string) string {
	c := &script{t: t, moves: map[int]Move{}, costs: costs{}, rounds: map[int]Round{}, apart: map[models.ServiceID]models.Outcome{}}
	var result []string
	for block := range strings.SplitSeq(strings.TrimSpace(text), "\n\n") {
		commands, _, _ := strings.Cut(block+"\n", "----\n")
		c.out.Reset()
		for line := range strings.SplitSeq(strings.TrimSpace(commands), "\n") {
			if !strings.HasPrefix(line, "#") {
				c.run(line)
			}
		}
		result = append(result, strings.TrimSpace(commands)+"\n----\n"+c.out.String())
	}
	return strings.Join(result, "\n")
}

func (c *script) printf(format string, args ...any) { fmt.Fprintf(&c.out, format+"\n", args...) }

func (c *script) run(line string) {
	a := parseArgs(c.t, line)
	if !c.configure(a) {
		if c.s == nil {
			c.s = newScheduler(c.config, testPolicy(c.t, c.config.Policy))
			for _, sv := range c.s.backlog.services {
				sv.Last.Size = 1 // each has had a query before
			}
			if !c.explores {
				believe(c.s)
			}
		}
		c.event(a)
		if err := c.s.Check(); err != nil {
			c.t.Fatalf("after %q: %v", line, err)
		}
		c.drain()
	}
}

func (c *script) configure(a args) bool {
	switch a.name {
	case "new":
		c.costs = costs{}
		c.s, c.now, c.rounds = nil, 0, map[int]Round{}
		c.explores = a.number("explores", 0) == 1
		c.costs.margin, c.costs.cut = a.number("margin", 0), a.ms("cut", 0)
		c.config = Config{
			Policy: a.text("policy"), Ways: a.number("ways", 0), MaxRetries: a.number("retries", 0),
			Devices: slices.Repeat([]Predictor{&c.costs}, a.number("devices", 1)), RoundTime: a.ms("round", 0),
		}
		if units := a.number("units", 1); units > 1 {
			c.config.Units = slices.Repeat([]int{units}, len(c.config.Devices))
			c.config.Alone = slices.Repeat([]bool{a.number("groups", 0) == 0}, len(c.config.Devices))
		}
	case "service":
		c.costs.add(a.ms("op", 10), a.number("grow", 100))
		c.config.Services = append(c.config.Services, a.service(models.ServiceID(len(c.config.Services))))
	case "pipeline":
		if c.s != nil {
			return false
		}
		m := &c.config.Services[c.service(a.words[0])]
		m.Pipelines = append(m.Pipelines, a.pipeline())
	case "links":
		for _, w := range a.words {
			n, _ := strconv.Atoi(w)
			c.config.Links = append(c.config.Links, n)
		}
	case "alone":
		c.config.Alone = make([]bool, len(c.config.Devices))
		for _, w := range a.words {
			i, _ := strconv.Atoi(w)
			c.config.Alone[i] = true
		}
	case "select":
		c.selected, c.config.Selector = a.words[0], c
	case "overlap":
		factor, err := strconv.ParseFloat(a.text("factor"), 64)
		if err != nil {
			c.t.Fatal(err)
		}
		c.costs.pair(c.service(a.words[0]), c.service(a.words[1]), factor)
	default:
		return false
	}
	return true
}

func (c *script) event(a args) {
	switch a.name {
	case "at":
		c.now = time.Duration(a.id()) * time.Millisecond
	case "arrive":
		c.arrive(a)
	case "next":
		c.next()
	case "plan":
		c.s.Advance(c.now)
	case "plans":
		c.printf("%+v", c.s.Metrics().Plans)
	case "explain":
		c.explain()
	case "turneddown":
		c.turnedDown()
	case "finish":
		c.finish(a)
	case "land":
		c.land(a)
	case "limit":
		c.printf("%v", c.s.Allowed(0, c.round.Predicted.Bound, 2))
	case "cancel":
		stop, running := c.s.cancel(c.now, models.QueryID(a.id()))
		c.printf("running %v, stop %d", running, stop.Batch)
	case "down":
		c.s.down(c.now, c.service(a.words[0]), a.number("on", 0))
	case "up":
		c.s.up(c.now, c.service(a.words[0]), a.number("on", 0))
	case "moved":
		m, status := c.moves[a.id()], models.SpanDone
		if a.text("as") == "lost" {
			status = models.SpanLost
		}
		if err := c.s.backlog.routes.moved(c.now, m, a.ms("took", 0), status); err != nil {
			c.printf("%v", err)
		}
	case "pipeline":
		m := c.config.Services[c.service(a.words[0])]
		m.Pipelines = []models.Pipeline{a.pipeline()}
		if err := c.s.change(c.now, m); err != nil {
			c.printf("%v", err)
		}
	case "restore":
		s := newScheduler(c.config, c.s.backlog.policy)
		k := c.s.Snapshot()
		if err := s.restore(&k); err != nil {
			c.t.Fatal(err)
		}
		c.s = s
	case "drain":
		_ = c.s.Step(c.now, &Event{Kind: Drain})
	case "wake":
		at, ok := c.s.backlog.wake()
		c.printf("%v %v", at, ok)
	case "idle":
		c.printf("%v", c.s.Idle())
	case "metrics":
		c.printf("%+v", c.s.Metrics().Services[c.service(a.words[0])])
	default:
		if !c.change(a) {
			c.t.Fatalf("unknown command %q", a.name)
		}
	}
}

func (c *script) arrive(a args) {
	err := c.s.arrive(c.now, models.Query{
		ID: models.QueryID(a.id()), Service: c.service(a.words[1]),
		Size: a.number("size", 1), SeqLen: a.number("seq", 0), Shape: uint64(a.number("shape", 0)),
		Arrival: c.now, Deadline: a.ms("deadline", 1000), Priority: a.number("priority", 0),
		Accuracy: float64(a.number("accuracy", 0)), Fixed: a.number("fixed", 0) == 1,
		Alone: a.number("alone", 0) == 1,
	})
	if err != nil {
		c.printf("%v (%v)", err, ReasonOf(err))
	}
}

func (c *script) next() {
	r, ok := c.s.next(c.now)
	if !ok {
		c.printf("nothing")
		return
	}
	c.round = r
	c.rounds[max(r.Device, r.Slot)] = r.clone() // a script has several devices, or one of several units
	c.printf("round %d, predicted %s", r.Number, c.predicted(&r))
	for i, s := range r.Group.Spans {
		c.printf("  %s batch %d [%d,%d) size %d queries %v", c.config.Services[s.Service].Name,
			s.Batch, s.Start, s.End, s.Size, r.Queries[i])
	}
}

func (c *script) predicted(r *Round) string {
	text := r.Predicted.Latency.String()
	if r.Predicted.Bound != r.Predicted.Latency {
		text += fmt.Sprintf(", at most %v", r.Predicted.Bound)
	}
	if r.Planned {
		text += ", planned"
	}
	if share := r.Spans[0].Share; share > 0 {
		text += fmt.Sprintf(", on a share of %d", share)
	}
	if c.config.Units != nil {
		text += fmt.Sprintf(", in slot %d", r.Slot)
	}
	if len(c.config.Devices) > 1 {
		text += fmt.Sprintf(", on %d", r.Device)
	}
	return text
}

// explain tells what was behind the last round.
func (c *script) explain() {
	e := c.s.Explain()
	c.printf("for %v, headroom %v, alone %v, asked %d times about %d groups", e.For, e.Headroom, e.Solo, e.Asked.Calls, e.Asked.Groups)
	for _, o := range e.Candidates {
		c.printf("  %s batch %d query %d from %d size %d: headroom %v, alone %v, place %d, end %d",
			c.config.Services[o.Service].Name, o.Batch, o.Query, o.Start, o.Size, o.Headroom, o.Solo.Latency, o.Place, o.End)
	}
	for _, o := range e.Dropped {
		c.printf("  %s batch %d query %d: headroom %v, dropped", c.config.Services[o.Service].Name, o.Batch, o.Query, o.Headroom)
	}
}

// turnedDown writes of each candidate of the last round in which group it was turned
// down.
func (c *script) turnedDown() {
	for _, o := range c.s.Explain().Candidates {
		c.printf("%s: place %d, with it %v, at most %v, headroom %v, apart %v",
			c.config.Services[o.Service].Name, o.Place, o.Tried.Latency, o.Tried.Bound, o.Tried.Headroom, o.Tried.Apart)
	}
}

func (c *script) finish(a args) {
	r := c.rounds[a.number("on", c.round.Device)]
	o := models.Outcome{Round: r.Number, Device: r.Device, Took: r.Predicted.Latency}
	for i, s := range r.Group.Spans {
		so := c.ended(s, a)
		so.Took *= time.Duration(s.Times(len(r.Queries[i])))
		if so.Status == models.SpanOverrun {
			c.apart[s.Service] = models.Outcome{Round: o.Round, Device: o.Device, Spans: []models.SpanOutcome{so}}
		}
		o.Spans = append(o.Spans, so)
	}
	if err := c.s.finish(c.now, o); err != nil {
		c.printf("%v", err)
	}
}

// ended returns what became of a span by the arguments of a command.
func (c *script) ended(s models.Span, a args) models.SpanOutcome {
	so := models.SpanOutcome{Span: s, Reached: s.End, Took: a.ms("took", int(c.costs.span(s)/time.Millisecond))}
	status, reached, _ := strings.Cut(a.text(c.config.Services[s.Service].Name), "@")
	for st := models.SpanDone; st <= models.SpanOverrun; st++ {
		if st.String() == status {
			so.Status = st
		}
	}
	if so.Status == models.SpanStopped {
		so.Reached, _ = strconv.Atoi(reached)
	}
	return so
}

// land ends the overruns of the services that it names.
func (c *script) land(a args) {
	for name := range a.named {
		id := c.service(name)
		o := c.apart[id]
		delete(c.apart, id)
		o.Spans = []models.SpanOutcome{c.ended(o.Spans[0].Span, a)}
		if err := c.s.finish(c.now, o); err != nil {
			c.printf("%v", err)
		}
	}
}

func (c *script) drain() {
	for _, a := range c.s.backlog.answers.take() {
		inUse := ""
		if a.InUse {
			inUse = ", in use"
		}
		c.printf("answer %d %v (%v): batch %d of size %d, retries %d, queue %v, run %v%s",
			a.Query, a.Result, a.Reason, a.Batch, a.BatchSize, a.Retries, a.Queue, a.Run, inUse)
	}
	for _, m := range c.s.backlog.moves.take() {
		c.moves[int(m.Batch)] = m
		c.printf("move batch %d of %s from %d to %d at %d size %d", m.Batch, c.config.Services[m.Service].Name, m.Device, m.To, m.Operator, m.Size)
	}
	for _, r := range c.s.backlog.released.take() {
		c.printf("release batch %d of %s", r.Batch, c.config.Services[r.Service].Name)
	}
}

func (c *script) service(name string) models.ServiceID {
	for _, m := range c.config.Services {
		if m.Name == name {
			return m.ID
		}
	}
	return -1
}

// args is one command of a script.
type args struct {
	t     *testing.T
	name  string
	words []string
	named map[string]string
}

func parseArgs(t *testing.T, line string) args {
	fields := strings.Fields(line)
	a := args{t: t, name: fields[0], named: map[string]string{}}
	for _, f := range fields[1:] {
		if name, value, ok := strings.Cut(f, "="); ok {
			a.named[name] = value
		} else {
			a.words = append(a.words, f)
		}
	}
	return a
}

func (a args) text(name string) string { return a.named[name] }

// pipeline returns the one that the words after the first have.
func (a args) pipeline() (p models.Pipeline) {
	p.Batch = a.number("batch", 1)
	for _, word := range a.words[1:] {
		var g models.Stage
		parts := strings.Split(word, ":")
		g.End, _ = strconv.Atoi(parts[0])
		for d := range strings.SplitSeq(parts[1], ",") {
			n, _ := strconv.Atoi(d)
			g.Devices = append(g.Devices, n)
		}
		if len(parts) > 2 {
			ms, _ := strconv.Atoi(parts[2])
			g.Move = time.Duration(ms) * time.Millisecond
		}
		p.Stages = append(p.Stages, g)
	}
	return p
}

func (a args) id() int {
	n, err := strconv.Atoi(a.words[0])
	if err != nil {
		a.t.Fatal(err)
	}
	return n
}

func (a args) number(name string, otherwise int) int {
	text, ok := a.named[name]
	if !ok {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		a.t.Fatalf("%s: %v", a.name, err)
	}
	return n
}

func (a args) ms(name string, otherwise int) time.Duration {
	return time.Duration(a.number(name, otherwise)) * time.Millisecond
}
