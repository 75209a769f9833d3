package main

import (
	"cmp"
	"errors"
	"io"
	"os"
	"slices"
	"time"

	"charm.land/bubbles/v2/key"
	tea "charm.land/bubbletea/v2"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/overlapd/overlapd/daemon/observe/timeline"
	"github.com/overlapd/overlapd/daemon/status"
	"github.com/overlapd/overlapd/internal/cli"
)

const (
	topEvery    = 500 * time.Millisecond // between an answer and the next question
	plainWidth  = 80                     // of the view where there is no terminal
	latelySteps = 12                     // of the history of a service: a minute
)

func topCommand() *cobra.Command {
	var at target
	var out cli.Output
	var v view
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Watch a running daemon in the terminal",
		Long: `Top shows twice a second how a daemon is doing: for each service its state, target, p50
and p99 of the last 256 queries, the percentage that was late or not answered, the
queue, and why queries were lost; and a timeline with a row for the device and one for
each service, newest on the right. Use it to watch a load test or to find out why
queries are late.

Keys: q quits, ? explains the columns and lists all keys, s sorts by the next column, r
reverses the order, p pauses and resumes. A narrow terminal shows fewer columns.
NO_COLOR in the environment turns colours off. If the output is not a terminal, top
prints the view once.`,
		Example: `  overlapd top
  overlapd top --url http://127.0.0.1:9000
  overlapd top | head          once, as text
  overlapd top --json          once, for programs`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			v.ask = func() (seen, error) { return seeDaemon(&at) }
			first, err := v.ask()
			if err != nil {
				return err
			}
			v.take(first)
			if !out.JSON && term.IsTerminal(int(os.Stdin.Fd())) && term.IsTerminal(int(os.Stdout.Fd())) {
				_, err := tea.NewProgram(&v, tea.WithContext(cmd.Context())).Run()
				if errors.Is(err, tea.ErrInterrupted) {
					return nil
				}
				return err
			}
			v.width = plainWidth
			return out.Print(cmd.OutOrStdout(), v.now, func(w io.Writer) error {
				_, err := io.WriteString(w, v.render()+"\n")
				return err
			})
		},
	}
	at.flags(cmd)
	out.Flags(cmd.Flags())
	cmd.Flags().Lookup("json").Usage += ": the status and the latest rounds"
	return cmd
}

// seen is the JSON of top: the state of a daemon at one moment.
type seen struct {
	Status   answers       `json:"status"`
	Timeline timeline.Page `json:"timeline"`
}

func seeDaemon(t *target) (s seen, err error) {
	if s.Status, err = askStatus(t); err != nil {
		return s, err
	}
	s.Timeline, err = askTimeline(t, timeline.Latest)
	return s, err
}

// view is what top shows: a daemon now and a moment ago, whose
// difference is rates. It is not updated while it is held, or while the connection is
// lost by an error. Height is 0 where there is no terminal.
type view struct {
	ask         func() (seen, error)
	now, before seen
	lost        error

	width, height int
	held, help    bool
	sort          int // a column of services
	reverse       bool
	first         int // services that are scrolled past
}

// What comes to the view besides keys and sizes.
type (
	due    struct{}
	answer struct {
		seen
		err error
	}
)

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

func bind(does string, keys ...string) key.Binding {
	return key.NewBinding(key.WithKeys(keys...), key.WithHelp(keys[0], does))
}

func (v *view) Init() tea.Cmd { return v.wait() }

func (v *view) wait() tea.Cmd { return tea.Tick(topEvery, func(time.Time) tea.Msg { return due{} }) }

func (v *view) Update(m tea.Msg) (tea.Model, tea.Cmd) {
	switch m := m.(type) {
	case tea.WindowSizeMsg:
		v.width, v.height = m.Width, m.Height
	case tea.KeyPressMsg:
		for _, k := range keys {
			if key.Matches(m, k.Binding) {
				return v, k.act(v)
			}
		}
	case due:
		if v.held {
			return v, v.wait()
		}
		return v, func() tea.Msg {
			s, err := v.ask()
			return answer{s, err}
		}
	case answer:
		if v.lost = m.err; m.err == nil && !v.held {
			v.take(m.seen)
		}
		return v, v.wait()
	}
	return v, nil
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

// serviceRow is a service as the table shows it.
type serviceRow struct {
	service status.Service
	lately  *timeline.Service
	lane    int // of the time line
	state   string
	rate    float64   // of answers
	inTime  []float64 // queries, in each of the last steps

	headroom float64
}

// services returns those that are served, sorted, without those that are scrolled past.
func (v *view) services() (rows []serviceRow) {
	for i := range v.now.Timeline.Services {
		lately := &v.now.Timeline.Services[i]
		if lately.Gone {
			continue
		}
		s := serviceNamed(&v.now.Status, lately.Name)
		rate := v.perSecond(s.Finished, serviceNamed(&v.before.Status, lately.Name).Finished)
		rows = append(rows, serviceRow{s, lately, i, stateOf(&v.now.Status.Overview, &s), rate, v.inTime(lately.Name), v.now.Status.Overview.Load.Services[lately.Name].Headroom})
	}
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

// inTime returns the queries of a service that were answered in time lately.
func (v *view) inTime(service string) (counts []float64) {
	for _, s := range v.now.Status.History.Services {
		if s.Name == service {
			for _, n := range s.InTime[max(0, len(s.InTime)-latelySteps):] {
				counts = append(counts, float64(n))
			}
		}
	}
	return counts
}

func serviceNamed(s *answers, name string) (found status.Service) {
	for _, service := range s.Overview.Services {
		if service.Name == name {
			found = service
		}
	}
	return found
}
