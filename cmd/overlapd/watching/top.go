package watching

import (
	"errors"
	"io"
	"os"
	"time"

	"charm.land/bubbles/v2/key"
	tea "charm.land/bubbletea/v2"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/overlapd/overlapd/internal/cli"
)

const (
	// topEvery is the time between an answer and the next question.
	topEvery = 500 * time.Millisecond
	// plainWidth is that of the view where there is no terminal.
	plainWidth = 80
)

// topCommand is status for the eye: the same answers, twice a second, with rates from the difference of
// two of them. The daemon does not know that somebody watches, and does nothing more for it than for a scrape.
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
			// Asked before the screen is taken, so that an error is read where it was typed.
			first, err := v.ask()
			if err != nil {
				return err
			}
			v.take(first)
			// Keys need a terminal to come from, and a screen one to go to.
			if !out.JSON && term.IsTerminal(int(os.Stdin.Fd())) && term.IsTerminal(int(os.Stdout.Fd())) {
				_, err := tea.NewProgram(&v, tea.WithContext(cmd.Context())).Run()
				// Somebody has quit it by a signal, which is as good as a key.
				if errors.Is(err, tea.ErrInterrupted) {
					return nil
				}
				return err
			}
			// Without a terminal the view is printed once, whole, for people who paste it.
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

// What comes to the view besides keys and sizes.
type (
	due    struct{}
	answer struct {
		seen
		err error
	}
)

// Init implements [tea.Model].
func (v *view) Init() tea.Cmd { return v.wait() }

// wait returns what makes the next look due. It begins after an answer, so that a slow daemon is not asked
// again while it answers.
func (v *view) wait() tea.Cmd { return tea.Tick(topEvery, func(time.Time) tea.Msg { return due{} }) }

// Update implements [tea.Model].
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
		// Asking takes time, in which keys should work.
		return v, func() tea.Msg {
			s, err := v.ask()
			return answer{s, err}
		}
	case answer:
		// What was seen last stays on the screen while the connection is lost.
		if v.lost = m.err; m.err == nil && !v.held {
			v.take(m.seen)
		}
		return v, v.wait()
	}
	return v, nil
}

// View implements [tea.Model].
func (v *view) View() tea.View {
	drawn := tea.NewView(v.render())
	drawn.AltScreen, drawn.WindowTitle = true, "overlapd top"
	return drawn
}
