package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/overlapd/overlapd/daemon/observe/timeline"
	"github.com/overlapd/overlapd/daemon/status"
	"github.com/overlapd/overlapd/stats"
)

const (
	topEvery   = 500 * time.Millisecond // the view is drawn anew
	keyPoll    = 100 * time.Millisecond // how soon a signal is noticed while no key is pressed
	plainWidth = 80                     // of the table where there is no terminal
)

func topCommand() *cobra.Command {
	var at target
	var out output
	var instance int
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Watch a running daemon in the terminal",
		Long: `Top shows how a daemon is doing, twice a second: each service with its target,
the p50 and p99 of its last 256 queries, the share of them that was late or
without an answer, its queue, and what ran lately: a row for the device and one
for each service, the newest on the right.

Keys: q quits, p holds the picture and lets it go on. Where the terminal is narrow,
columns are left out; NO_COLOR in the environment leaves out colours. Where the
output is no terminal, top prints the view once.`,
		Example: `  overlapd top
  overlapd top --url http://127.0.0.1:9000
  overlapd top | head          once, as text
  overlapd top --json          once, for programs`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			v := view{instance: instance}
			if err := v.ask(&at); err != nil {
				return err
			}
			if in, screen := int(os.Stdin.Fd()), int(os.Stdout.Fd()); !out.json && term.IsTerminal(in) && term.IsTerminal(screen) {
				ctx, stop := interruptible(cmd)
				defer stop()
				return watch(ctx, &v, &at, in, screen)
			}
			return out.print(cmd.OutOrStdout(), v.now, func(w io.Writer) error {
				_, err := io.WriteString(w, v.render(plainWidth, 0, false))
				return err
			})
		},
	}
	at.flags(cmd)
	cmd.Flags().IntVar(&instance, "instance", 0, "instance of a GPU that is divided, from 0")
	out.flag(cmd.Flags())
	cmd.Flags().Lookup("json").Usage += ": the status and the latest rounds"
	return cmd
}

// seen is the JSON of top: the state of a daemon at one moment.
type seen struct {
	Status   answers       `json:"status"`
	Timeline timeline.Page `json:"timeline"`
}

// view is an instance of a daemon now and a moment ago: rates are the difference. It
// is not updated while it is held, or while the connection is lost by an error.
type view struct {
	now, before seen
	instance    int
	held        bool
	lost        error
}

func (v *view) ask(t *target) error {
	var s seen
	var err error
	if s.Status, err = askStatus(t); err != nil {
		return err
	}
	if s.Timeline, err = askTimeline(t, v.instance, timeline.Latest); err != nil {
		return err
	}
	v.before, v.now = v.now, s
	if !v.before.Timeline.Epoch.Equal(v.now.Timeline.Epoch) { // it was restarted
		v.before = v.now
	}
	return nil
}

const (
	enterScreen = "\x1b[?1049h\x1b[?25l" // another screen, no cursor
	leaveScreen = "\x1b[?25h\x1b[?1049l"
	fromTop     = "\x1b[H"
	restOfLine  = "\x1b[K"
	restOfView  = "\x1b[J"
)

// watch draws the view until q is pressed, and leaves the terminal as it was.
func watch(ctx context.Context, v *view, t *target, in, out int) error {
	was, err := term.MakeRaw(in)
	if err != nil {
		return fmt.Errorf("the terminal cannot be used: %w; overlapd status prints a table", err)
	}
	defer func() { _ = term.Restore(in, was) }()
	fmt.Print(enterScreen)
	defer fmt.Print(leaveScreen)
	colour := os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
	for {
		width, height, err := term.GetSize(out)
		if err != nil {
			return err
		}
		fmt.Print(fromTop + strings.ReplaceAll(v.render(width, height, colour), "\n", restOfLine+"\r\n") + restOfView)
		if quit := v.keys(ctx, in, topEvery); quit {
			return nil
		}
		if !v.held {
			v.lost = v.ask(t)
		}
	}
}

// keys handles keys for some time. It reports whether to quit.
func (v *view) keys(ctx context.Context, in int, lasts time.Duration) (quit bool) {
	var key [16]byte
	for end := time.Now().Add(lasts); time.Now().Before(end); {
		if ctx.Err() != nil {
			return true
		}
		fds := []unix.PollFd{{Fd: int32(in), Events: unix.POLLIN}}
		if n, err := unix.Poll(fds, int(keyPoll.Milliseconds())); err != nil || n == 0 {
			continue // nothing, or a signal
		}
		n, err := unix.Read(in, key[:])
		if err != nil || n == 0 {
			return true // the terminal is gone
		}
		for _, k := range key[:n] {
			switch k {
			case 'q', 'Q', 3, 4: // 3 and 4 are Ctrl-C and Ctrl-D
				return true
			case 'p', 'P', ' ':
				v.held = !v.held
				return false
			}
		}
	}
	return false
}

const (
	// Names are of usualNames in a terminal of plainWidth.
	leastNames, usualNames, mostNames = 4, 16, 32

	fixedLines = 7 // belong to no service
)

// render draws the view, without the services for which the height (0 is any) has no line.
func (v *view) render(width, height int, colour bool) string {
	var b strings.Builder
	services := len(v.now.Timeline.Services)
	shown := services
	if height > 0 {
		shown = min(services, max(1, (height-fixedLines)/2))
	}
	paint := func(code int, text string) string {
		if !colour {
			return text
		}
		return fmt.Sprintf("\x1b[%dm%s\x1b[0m", code, text)
	}
	lines := 0
	line := func(text string) {
		if lines++; height == 0 || lines <= max(1, height-1) { // the cursor has the last one
			b.WriteString(text + "\n")
		}
	}
	names := v.nameWidth(width)
	room := width - names
	line(v.title(width, height > 0))
	line(clip(v.summary(), width))
	line(paint(2, clip(row(name("SERVICE", names), room, func(i int) string { return columns[i].head }), width)))
	for i := range shown {
		if !v.now.Timeline.Services[i].Gone { // its last groups are still in the picture
			line(paint(v.mood(i), clip(v.service(i, names, room), width)))
		}
	}
	if shown < services {
		line(clip(fmt.Sprintf("and %d more: make the terminal higher, or see overlapd status", services-shown), width))
	}
	legend, device, rows := v.picture(max(1, width-names-1))
	line(paint(2, clip(legend, width)))
	line(name("device", names) + " " + device)
	for i := range shown {
		line(name(v.now.Timeline.Services[i].Name, names) + " " + paint(hues[i%len(hues)], rows[i]))
	}
	return b.String()
}

// nameWidth returns the width of the longest name that all columns leave room for.
func (v *view) nameWidth(width int) int {
	longest := len("SERVICE")
	for i := range v.now.Timeline.Services {
		longest = max(longest, len([]rune(v.now.Timeline.Services[i].Name)))
	}
	if width < plainWidth {
		return max(leastNames, min(longest, width/4))
	}
	return min(max(longest, usualNames), mostNames, usualNames+width-plainWidth)
}

var hues = []int{34, 33, 32, 35, 36, 31}

// title names the device, which is cut if need be, and the state of the view.
func (v *view) title(width int, keys bool) string {
	o := &v.now.Status.Overview
	state := ""
	if keys {
		state = "q quits, p holds"
	}
	switch {
	case v.lost != nil:
		state = "CONNECTION LOST: " + v.lost.Error()
	case v.held:
		state = "HELD, p goes on"
	case !v.now.Status.Ready:
		var loading []string
		for _, s := range o.Services {
			if !s.Ready {
				loading = append(loading, s.Name)
			}
		}
		state = "not ready: " + strings.Join(loading, ", ")
	}
	text := "overlapd on " + o.Device
	if o.Emulated {
		text += ", nothing is computed"
	}
	if state != "" {
		state = "   " + clip(state, width)
	}
	text = clip(text, width-len([]rune(state)))
	return strings.TrimLeft(text+state, " ")
}

// since is the time between the two looks, 0 at first.
func (v *view) since() time.Duration { return v.now.Timeline.Now - v.before.Timeline.Now }

func (v *view) perSecond(now, before uint64) string {
	if v.since() <= 0 || now < before {
		return "-"
	}
	return fmt.Sprintf("%.0f", float64(now-before)/v.since().Seconds())
}

func (v *view) summary() string {
	o, was := &v.now.Status.Overview, &v.before.Status.Overview
	busy := "-"
	if v.since() > 0 {
		busy = fmt.Sprintf("%.0f %%", 100*min(1, (o.BusySeconds-was.BusySeconds)/v.since().Seconds()/float64(max(1, len(o.Instances)))))
	}
	text := fmt.Sprintf("up %v  policy %s  rounds/s %s  busy %s  predictor %s", time.Duration(o.UpSeconds*1e9).Round(time.Second),
		o.Policy, v.perSecond(o.Rounds, was.Rounds), busy, o.Predictor.Phase)
	if f := o.Predictor.File; f != nil {
		text += fmt.Sprintf(", error %.1f %%", f.MAPE)
	}
	return text
}

// columns are those of services. Each is shown from a width for all of them on.
var columns = []struct {
	head        string
	width, from int
}{
	{"TARGET", 8, 46}, {"P50", 9, 37}, {"P99", 9, 10}, {"MISSED", 8, 19}, {"QUEUE", 7, 27}, {"DONE/S", 6, 53}, {"LOST", 9, 63},
}

// row writes a line of the table of services.
func row(first string, room int, cell func(column int) string) string {
	for i, c := range columns {
		if c.from <= room {
			first += fmt.Sprintf(" %*s", c.width, cell(i))
		}
	}
	return first
}

// service returns a line. LOST counts late and unanswered queries since the start.
func (v *view) service(i, names, room int) string {
	r := &v.now.Timeline.Services[i]
	s, was := serviceNamed(&v.now.Status, r.Name), serviceNamed(&v.before.Status, r.Name)
	lost := s.Late + stats.Sum(s.Dropped) + stats.Sum(s.Failed) + stats.Sum(s.Refused)
	cells := []string{short(r.Target), short(r.P50), short(r.P99), missedOf(r), fmt.Sprint(s.Queued), v.perSecond(s.Finished, was.Finished), fmt.Sprint(lost)}
	return row(name(r.Name, names), room, func(column int) string { return cells[column] })
}

func serviceNamed(s *answers, name string) (found status.Service) {
	for _, service := range s.Overview.Services {
		if service.Name == name {
			found = service
		}
	}
	return found
}

// mood returns red for a p99 over its target, yellow for a query that was missed.
func (v *view) mood(i int) int {
	r := &v.now.Timeline.Services[i]
	switch {
	case r.P99 > r.Target:
		return 31
	case r.Missed > 0:
		return 33
	}
	return 0
}

// picture returns a time line of rounds, in which a character is a piece of time: a row
// for the device and one for each service.
func (v *view) picture(columns int) (legend, device string, services []string) {
	p := &v.now.Timeline
	rounds := p.Rounds
	if len(rounds) == 0 {
		return "no group has run yet: overlapd bench serve puts load on the daemon", "", make([]string, len(p.Services))
	}
	each := columnTime(rounds)
	end := rounds[len(rounds)-1].End
	begin := end - each*time.Duration(columns)
	rows := make([][]rune, len(p.Services)+1) // the last one is of the device
	for i := range rows {
		rows[i] = slices.Repeat([]rune{'.'}, columns)
	}
	for i := range rounds {
		r := &rounds[i]
		fill := func(row []rune, mark rune) {
			for x := max(0, r.Start-begin) / each; x <= (r.End-begin-1)/each && r.End > begin; x++ {
				row[x] = mark
			}
		}
		if r.Bound > 0 && r.Took > r.Bound {
			fill(rows[len(p.Services)], '!')
		} else {
			fill(rows[len(p.Services)], '=')
		}
		for j := range r.Spans {
			s := &r.Spans[j]
			fill(rows[s.Service], '#')
			if due := s.Deadline - begin; due > 0 && s.End == s.Of && rows[s.Service][min(columns-1, int(due/each))] == '.' && due < each*time.Duration(columns) {
				rows[s.Service][int(due/each)] = 'v'
			}
		}
	}
	for _, row := range rows[:len(p.Services)] {
		services = append(services, string(row))
	}
	return fmt.Sprintf("each column %v: # runs, v deadline, ! longer than bound", each), string(rows[len(p.Services)]), services
}

// columnTime is 1, 2 or 5 times a power of ten: the median of rounds has about three.
func columnTime(rounds []timeline.Round) time.Duration {
	var took []time.Duration
	for _, r := range rounds[max(0, len(rounds)-50):] {
		took = append(took, r.End-r.Start)
	}
	third := max(float64(stats.Median(took))/3, float64(10*time.Microsecond))
	power := math.Pow(10, math.Floor(math.Log10(third)))
	for _, f := range []float64{1, 2, 5} {
		if f*power >= third*0.999 {
			return time.Duration(math.Round(f * power))
		}
	}
	return time.Duration(math.Round(10 * power))
}

// name pads or cuts a name to a width.
func name(s string, width int) string { return fmt.Sprintf("%-*s", width, clip(s, width)) }

// clip cuts a text to a width and replaces characters that control a terminal.
func clip(s string, width int) string {
	runes := []rune(strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, s))
	if width <= 0 {
		return ""
	}
	if len(runes) > width {
		return string(runes[:width-1]) + "~"
	}
	return string(runes)
}
