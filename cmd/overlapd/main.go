// Overlapd serves several DNN models on one device and keeps their latency
// targets. See README.md.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/overlapd/overlapd/daemon/admin"
	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/internal/report"
	"github.com/overlapd/overlapd/segments/wire"
)

// version and commit identify the build; the Makefile sets commit.
var (
	version = "0.1.0"
	commit  = ""
)

func main() {
	if err := root().Execute(); err != nil {
		if !errors.Is(err, errReported) {
			fmt.Fprintln(forTerminal(os.Stderr), "overlapd:", err.Error()+remedy(err))
		}
		os.Exit(exitStatus(err))
	}
}

// remedy returns what helps where the process has come to one of its limits.
func remedy(err error) string {
	switch {
	case errors.Is(err, unix.EMFILE):
		return "; the process has reached its limit of open files: raise ulimit -n, or LimitNOFILE= of its unit, to at least 4096"
	case errors.Is(err, unix.EFBIG):
		return "; the process has reached its file size limit, which includes shared memory: lift ulimit -f, or LimitFSIZE= of its unit, or lower worker.input_bytes and worker.output_bytes"
	case errors.Is(err, unix.ENOSPC):
		return "; free space there"
	}
	return ""
}

// exitConfig is the status of sysexits.h for a wrong configuration. systemd
// does not start the daemon again after it: the file would be as wrong.
const exitConfig = 78

func exitStatus(err error) int {
	_, faulty := errors.AsType[config.Faults](err)
	faulty = faulty || errors.Is(err, wire.ErrModel)
	if e, ok := errors.AsType[*admin.Error](err); faulty || ok && e.Kind == admin.KindConfig {
		return exitConfig
	}
	return 1
}

// errReported ends a command that has printed its error already.
var errReported = errors.New("reported")

func root() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "overlapd",
		Short: "Serve several DNN models on one device and keep their latency targets",
		Long: `overlapd serves several DNN models on the GPU or CPU of one host. It runs operators
of different models at the same time, and answers each query within the latency
target of its service or rejects it early. Each service is an ONNX model in its own
worker process.

Start with:  overlapd demo                see what overlapping gains; needs no GPU
             overlapd serve --embedded    serve two built-in models on the CPU
             overlapd status              see what the running daemon serves

Then:        overlapd bench serve         put load on the daemon
             overlapd top                 watch it in the terminal
             overlapd check --embedded    print a configuration to start from
             overlapd check FILE          check your own, then: overlapd serve --config FILE`,
		Version:       version + " (" + buildCommit() + ")",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	cmd.SetFlagErrorFunc(func(at *cobra.Command, err error) error {
		return fmt.Errorf("%s%s; see %s --help", flagFault(err), guess(nearOptions(at, err)), at.CommandPath())
	})
	topic := func(head string, members ...*cobra.Command) {
		cmd.AddGroup(&cobra.Group{ID: head, Title: head + ":"})
		cmd.AddCommand(members...)
		for _, c := range members {
			c.GroupID = head
		}
	}
	topic("Serving", serveCommand(), checkCommand(), importCommand(), reloadCommand(), restartCommand(), drainCommand())
	topic("Watching", statusCommand(), topCommand(), traceCommand(), replayCommand())
	topic("Measuring and predicting", profileCommand(), trainCommand(),
		group("dataset", "Import, export and show measured operator groups",
			datasetImportCommand(), datasetExportCommand(), datasetShowCommand(), datasetDeleteCommand()),
		group("predictor", "Share a predictor and its measurements with other daemons", predictorExportCommand(), predictorImportCommand()))
	topic("Trying and planning", demoCommand(), adviseCommand(),
		group("bench", "Put load on a running daemon, and measure what cutting models costs", benchEngineCommand(), benchServeCommand(), benchProbeCommand()),
		group("device", "Fit a device profile to measurements, to simulate or emulate the device", deviceFitCommand(), deviceShowCommand()),
		group("models", "List and build the zoo models, and show how a model is cut",
			modelsListCommand(), modelsBuildCommand(), modelsInspectCommand()),
		group("plan", "Plan which models go on which devices, and which variant answers", planPlacementCommand(), planPipelineCommand(), planSelectionCommand()),
		group("reproduce", "Reproduce the figures of published papers", reproduceAbacusCommand(), reproduceSymphonyCommand(), reproduceShepherdCommand(), reproduceRAMSISCommand(), reproducePPipeCommand()), simulateCommand())
	topic("Others", versionCommand())
	cmd.SetHelpCommandGroupID("Others")
	cmd.SetCompletionCommandGroupID("Others")
	cmd.AddCommand(workerCommand(), checkStateCommand(), fitCommand(), manCommand())
	cmd.RunE, cmd.Args = wantCommand, cobra.ArbitraryArgs // which wantCommand refuses
	cmd.SetOut(forTerminal(os.Stdout))
	cmd.SetErr(forTerminal(os.Stderr))
	cmd.CompletionOptions.DisableNoDescFlag = true
	cmd.InitDefaultCompletionCmd()
	if powershell, _, err := cmd.Find([]string{"completion", "powershell"}); err == nil {
		completion := powershell.Parent()
		completion.RunE, completion.Args = wantCommand, nil
		completion.RemoveCommand(powershell)
	}
	eachCommand(cmd, func(c *cobra.Command) {
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if required(f) {
				f.Usage += " (required)"
			}
		})
	})
	useOurWords(cmd)
	// A group does not run without a command.
	cmd.SetUsageTemplate(strings.Replace(cmd.UsageTemplate(), "{{if .Runnable}}", "{{if and .Runnable (not .HasAvailableSubCommands)}}", 1))
	if err := completeValues(cmd); err != nil {
		panic(err) // two completions for one option
	}
	eachCommand(cmd, func(c *cobra.Command) {
		if c.Args != nil && !c.HasSubCommands() {
			c.Args = checkLine(c.Args)
		}
	})
	return cmd
}

func required(f *pflag.Flag) bool { return len(f.Annotations[cobra.BashCompOneRequiredFlag]) > 0 }

// group returns a command that only holds others.
func group(use, short string, members ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{Use: use, Short: short, DisableFlagsInUseLine: true, RunE: wantCommand}
	cmd.AddCommand(members...)
	return cmd
}

// wantCommand refuses a misspelt command, which Cobra would answer with the group's help.
func wantCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return cmd.Help()
	}
	cmd.SuggestionsMinimumDistance = 2
	return fmt.Errorf("unknown command %q for %q%s; see %s --help", args[0], cmd.CommandPath(), guess(cmd.SuggestionsFor(args[0])), cmd.CommandPath())
}

// nearOptions returns the options that a misspelt one may be, by Cobra's rule for
// commands.
func nearOptions(cmd *cobra.Command, err error) []string {
	missing, ok := errors.AsType[*pflag.NotExistError](err)
	if !ok || missing.GetSpecifiedShortnames() != "" {
		return nil
	}
	options := cobra.Command{SuggestionsMinimumDistance: 2}
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			options.AddCommand(&cobra.Command{Use: "--" + f.Name, Run: func(*cobra.Command, []string) {}})
		}
	})
	return options.SuggestionsFor("--" + missing.GetSpecifiedName())
}

// guess asks whether one of these words was meant.
func guess(words []string) string {
	if len(words) == 0 {
		return ""
	}
	return "; did you mean " + strings.Join(words, " or ") + "?"
}

// interruptible returns a context that ends with the first signal to stop. A second one
// quits the process, as the first does with commands that do nothing before they end.
func interruptible(cmd *cobra.Command) (context.Context, context.CancelFunc) {
	ctx, stop := signal.NotifyContext(cmd.Context(), unix.SIGINT, unix.SIGTERM)
	context.AfterFunc(ctx, stop)
	return ctx, stop
}

// self returns a command line that runs a hidden command of this binary.
func self(args ...string) []string {
	path, err := os.Executable()
	if err != nil { // without /proc
		path = os.Args[0]
	}
	return append([]string{path}, args...)
}

func buildCommit() string {
	if commit != "" {
		return commit
	}
	if revision := buildSetting("vcs.revision"); len(revision) >= 12 {
		return revision[:12]
	}
	return "unknown"
}

func buildSetting(key string) string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == key {
				return s.Value
			}
		}
	}
	return ""
}

// output is how a command prints its result: as text, or as one JSON object.
type output struct{ json bool }

func (o *output) flag(f *pflag.FlagSet) {
	f.BoolVar(&o.json, "json", false, "print one JSON object")
}

func (o *output) print(w io.Writer, v any, writeText func(io.Writer) error) error {
	if o.json {
		return report.WriteJSON(w, v)
	}
	return writeText(w)
}

// newBar returns a bar, silent unless on a terminal. It is for looks: ignore its errors.
func newBar(what string, total int, options ...progressbar.Option) *progressbar.ProgressBar {
	to := io.Discard
	if term.IsTerminal(int(os.Stderr.Fd())) {
		to = os.Stderr
	}
	return progressbar.NewOptions(max(total, 1), append(options,
		progressbar.OptionSetDescription(what),
		progressbar.OptionSetWriter(to),
		progressbar.OptionShowCount(),
		progressbar.OptionSetElapsedTime(false),
		progressbar.OptionSetPredictTime(false),
		progressbar.OptionClearOnFinish(),
	)...)
}

// showPart moves a bar to a part of the work, 0 to 1.
func showPart(bar *progressbar.ProgressBar, doing string, done float64) {
	const steps = 1000
	bar.ChangeMax(steps)
	bar.Describe(doing)
	_ = bar.Set(min(int(math.Round(done*steps)), steps-1)) // a full bar would end its line
}

// forTerminal returns a writer to a file, through harmless if it is a terminal.
func forTerminal(f *os.File) io.Writer {
	if term.IsTerminal(int(f.Fd())) {
		return &harmless{to: f}
	}
	return f
}

// columnsOf returns how many columns the terminal has that is written to, 0 for none.
func columnsOf(w io.Writer) int {
	h, ok := w.(*harmless)
	if !ok {
		return 0
	}
	f, ok := h.to.(*os.File)
	if !ok {
		return 0
	}
	width, _, err := term.GetSize(int(f.Fd()))
	if err != nil {
		return 0
	}
	return width
}

// harmless writes text that others made, such as names in a model, to a terminal.
// Characters that control it, or make a text look like another one, become escapes. The
// first bytes of a character that Write ends in wait in rest for the others.
type harmless struct {
	to   io.Writer
	rest []byte
}

func (h *harmless) Write(p []byte) (int, error) {
	text := append(h.rest, p...)
	h.rest = nil
	out := make([]byte, 0, len(text))
	for size := 0; len(text) > 0; text = text[size:] {
		if !utf8.FullRune(text) {
			h.rest = append(h.rest, text...)
			break
		}
		var r rune
		switch r, size = utf8.DecodeRune(text); {
		case r == utf8.RuneError && size == 1:
			out = fmt.Appendf(out, `\x%02x`, text[0])
		case r != '\n' && r != '\t' && unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp):
			out = fmt.Appendf(out, `\u%04x`, r)
		default:
			out = append(out, text[:size]...)
		}
	}
	if _, err := h.to.Write(out); err != nil {
		return 0, err
	}
	return len(p), nil
}

// outliveLog makes a write to a log without a reader fail. Go would end the daemon by
// SIGPIPE, whose log collector may be restarted. The signal is caught and not ignored
// because children inherit what is ignored.
func outliveLog() (release func()) {
	pipes := make(chan os.Signal, 1) // never read; a full channel drops signals
	signal.Notify(pipes, unix.SIGPIPE)
	return func() { signal.Stop(pipes) }
}
