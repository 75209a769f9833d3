package watching

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"charm.land/bubbles/v2/key"
	tea "charm.land/bubbletea/v2"

	"github.com/overlapd/overlapd/daemon/observe/timeline"
	"github.com/overlapd/overlapd/daemon/status"
	"github.com/overlapd/overlapd/internal/report"
	"github.com/overlapd/overlapd/internal/stats"
)

// recentSteps is how much of the history of a service is shown: a minute.
const recentSteps = 12

// view is what top shows: a daemon now and a moment ago, whose
// difference is rates. It is not updated while it is held, or while the connection is
// lost by an error. Height is 0 where there is no terminal.
type view struct {
	ask         func() (seen, error)
	now, before seen
	lost        error

	width, height int
	held, help    bool
	// sort is a column of services.
	sort    int
	reverse bool
	// first is how many services are scrolled past.
	first int
}

// keys are what each key does, in the order of the help.
var keys = []struct {
	key.Binding
	act func(*view) tea.Cmd
}{
	{bind("explain", "?", "h"), func(v *view) tea.Cmd { v.help = !v.help; return nil }},
	{bind("quit", "q", "ctrl+c", "ctrl+d"), func(*view) tea.Cmd { return tea.Quit }},
	{bind("pause or resume", "p", "space"), func(v *view) tea.Cmd { v.held = !v.held; return nil }},
	{bind("sort by the next column", "s"), func(v *view) tea.Cmd { v.sort = (v.sort + 1) % len(serviceColumns); return nil }},
	{bind("reverse the order", "r"), func(v *view) tea.Cmd { v.reverse = !v.reverse; return nil }},
	{bind("scroll down the services", "down", "j"), func(v *view) tea.Cmd { v.first++; return nil }},
	{bind("scroll up the services", "up", "k"), func(v *view) tea.Cmd { v.first = max(0, v.first-1); return nil }},
	{bind("suspend to the shell", "ctrl+z"), func(*view) tea.Cmd { return tea.Suspend }},
}

// bind returns a binding whose help names the first of its keys.
func bind(does string, keys ...string) key.Binding {
	return key.NewBinding(key.WithKeys(keys...), key.WithHelp(keys[0], does))
}

// take makes what was seen the state of now.
func (v *view) take(s seen) {
	v.before, v.now = v.now, s
	if !v.before.Timeline.Epoch.Equal(v.now.Timeline.Epoch) { // it was restarted
		v.before = v.now
	}
}

// since is the time between the two looks, 0 at first.
func (v *view) since() time.Duration { return v.now.Timeline.Now - v.before.Timeline.Now }

// perSecond returns the rate of a counter, 0 if it is not known.
func (v *view) perSecond(now, before uint64) float64 {
	if v.since() <= 0 || now < before {
		return 0
	}
	return float64(now-before) / v.since().Seconds()
}

// serviceColumns are the columns of services: the text of a cell, and what they are
// sorted by, the greatest first. Rank says which are left out where the terminal is
// narrow: those of the highest rank first. A heading is as wide as its column is at
// least, so that columns stand still while values change.
var serviceColumns = []struct {
	head    string
	rank    int
	meaning string
	cell    func(*serviceRow) (text string, order float64)
}{
	{"SERVICE", 0, "in the order of the configuration", func(r *serviceRow) (string, float64) { return r.recent.Name, -float64(r.lane) }},
	{"STATE   ", 4, "ready, loading, overrun or failed, or where its model is", func(r *serviceRow) (string, float64) { return r.state, float64(len(r.state)) }},
	{"TARGET", 6, "latency target", func(r *serviceRow) (string, float64) { return latency(r.recent.Target) }},
	{"     P50", 5, "latency of the last 256 queries", func(r *serviceRow) (string, float64) { return latency(r.recent.P50) }},
	{"     P99", 1, "latency of the same; red if above the target", func(r *serviceRow) (string, float64) { return latency(r.recent.P99) }},
	{" MISSED", 2, "percentage of the same that was late or not answered", func(r *serviceRow) (string, float64) {
		return missedOf(r.recent), float64(r.recent.Missed) / float64(max(1, r.recent.Ended))
	}},
	{"HEADROOM", 9, "time left before the deadline at p99, in % of the target, in the last minute", func(r *serviceRow) (string, float64) { return percentOf(r.headroom), -r.headroom }},
	{"QUEUE", 3, "queued queries", func(r *serviceRow) (string, float64) { return count(r.service.Queued) }},
	{"DONE/S", 7, "queries answered per second", func(r *serviceRow) (string, float64) { return report.OrDash("%.0f", r.rate), r.rate }},
	{"  MEMORY", 10, "memory of its worker process", func(r *serviceRow) (string, float64) {
		return memoryOf(&r.service), float64(cmp.Or(r.service.MemoryBytes, r.service.ResidentBytes))
	}},
	{"LATELY      ", 11, "queries answered in time, a bar for five seconds, newest on the right", func(r *serviceRow) (string, float64) { return sparkline(r.inTime, recentSteps), stats.Mean(r.inTime) }},
	{"  LOST", 8, "queries late or not answered since the start", func(r *serviceRow) (string, float64) { return count(losses(&r.service)) }},
	{"WHY", 12, "reasons for lost queries, most frequent first", func(r *serviceRow) (string, float64) { return whyLost(&r.service), float64(losses(&r.service)) }},
}

func latency(d time.Duration) (string, float64) { return short(d), float64(d) }

func count[N int | uint64](n N) (string, float64) { return fmt.Sprint(n), float64(n) }

// serviceRow is a service as the table shows it.
type serviceRow struct {
	service status.Service
	recent  *timeline.Service
	lane    int // of the time line
	state   string
	rate    float64   // of answers
	inTime  []float64 // queries, in each of the last steps

	headroom float64
}

// services returns those that are served, sorted, without those that are scrolled past.
func (v *view) services() (rows []serviceRow) {
	for i := range v.now.Timeline.Services {
		recent := &v.now.Timeline.Services[i]
		// The timeline still names it, for the rounds that it ran in.
		if recent.Gone {
			continue
		}
		s := serviceNamed(&v.now.Status, recent.Name)
		rate := v.perSecond(s.Finished, serviceNamed(&v.before.Status, recent.Name).Finished)
		rows = append(rows, serviceRow{s, recent, i, stateOf(&v.now.Status.Overview, &s), rate, v.inTime(recent.Name), v.now.Status.Overview.Load.Services[recent.Name].Headroom})
	}
	// Stable, so that services with equal values stand still.
	slices.SortStableFunc(rows, func(a, b serviceRow) int {
		_, x := serviceColumns[v.sort].cell(&a)
		_, y := serviceColumns[v.sort].cell(&b)
		if v.reverse {
			x, y = y, x
		}
		return cmp.Compare(y, x)
	})
	v.first = min(v.first, max(0, len(rows)-1))
	return rows[v.first:]
}

// inTime returns the queries of a service that were answered in time recently.
func (v *view) inTime(service string) (counts []float64) {
	for _, s := range v.now.Status.History.Services {
		if s.Name == service {
			for _, n := range s.InTime[max(0, len(s.InTime)-recentSteps):] {
				counts = append(counts, float64(n))
			}
		}
	}
	return counts
}

// serviceNamed returns what is known of a service, nothing of one that was not there then.
func serviceNamed(s *answers, name string) (found status.Service) {
	for _, service := range s.Overview.Services {
		if service.Name == name {
			found = service
		}
	}
	return found
}
