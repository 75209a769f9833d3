package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/models/zoo"
	"github.com/overlapd/overlapd/ort"
	"github.com/overlapd/overlapd/segments"
)

func modelsCommand() *cobra.Command {
	return group("models", "List and build the models of the zoo, and see how a model is cut",
		modelsListCommand(), modelsBuildCommand(), modelsInspectCommand())
}

// zooRow is a model of the zoo in the JSON of models list.
type zooRow struct {
	Name      string `json:"name"`
	Precision string `json:"precision"`
	Params    int64  `json:"params"`
	Bytes     int64  `json:"bytes"`
	Summary   string `json:"summary"`
}

func modelsListCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the models of the zoo",
		Long: `The zoo holds models that overlapd builds itself, with weights from a seed: they
have the operators and the cost of the real ones, and know nothing. A service
uses one with model = "zoo:NAME".`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var rows []zooRow
			for _, name := range zoo.Names() {
				e, _ := zoo.Lookup(name)
				rows = append(rows, zooRow{e.Name, e.Precision, e.Params, e.Size(), e.Summary})
			}
			if asJSON {
				return printJSON(cmd.OutOrStdout(), map[string]any{"models": rows})
			}
			t := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
			fmt.Fprintln(t, "NAME\tPRECISION\tPARAMETERS\tFILE\tWHAT IT IS")
			for _, r := range rows {
				fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", r.Name, r.Precision, metric(r.Params, ""), metric(r.Bytes, "B"), r.Summary)
			}
			return t.Flush()
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return cmd
}

func modelsBuildCommand() *cobra.Command {
	var dir string
	var seed uint64
	cmd := &cobra.Command{
		Use:   "build NAME...",
		Short: "Write models of the zoo as ONNX files, with weights from a seed",
		Example: `  overlapd models build resnet50 bert-fp16 --out models
  overlapd models build vgg19 --seed 7`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, names []string) error {
			for _, name := range names {
				if _, ok := zoo.Lookup(name); !ok {
					return fmt.Errorf("the zoo has no model %q; see overlapd models list", name)
				}
			}
			for _, name := range names {
				path, err := buildZoo(name, dir, seed)
				if err != nil {
					return err
				}
				fmt.Fprintln(cmd.OutOrStdout(), path)
			}
			return nil
		},
	}
	cmd.Flags().StringVarP(&dir, "out", "o", ".", "folder to write to, made if it is not there")
	cmd.Flags().Uint64Var(&seed, "seed", zooSeed, "seed of the weights")
	return cmd
}

func modelsInspectCommand() *cobra.Command {
	var asJSON, asIs bool
	o := inspectOptions{}
	cmd := &cobra.Command{
		Use:   "inspect NAME|FILE",
		Short: "Show a model's inputs, outputs, operators, cuts and live bytes",
		Long: `Inspect optimizes a model for this machine, cuts it and runs it once on zeros.
It shows every operator with the bytes that are alive after it, which is what a
query keeps when it is paused there. With --as-is the file is shown as it
stands, without ONNX Runtime: its nodes, and the values alive at each cut.`,
		Example: `  overlapd models inspect resnet50
  overlapd models inspect model.onnx --cut 16 --json
  overlapd models inspect model.onnx --as-is`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			path, err := modelPath(args[0])
			if err != nil {
				return err
			}
			inspect := o.optimized
			if asIs {
				inspect = o.asIs
			}
			found, err := inspect(path)
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(cmd.OutOrStdout(), found)
			}
			return found.writeText(cmd.OutOrStdout())
		},
	}
	f := cmd.Flags()
	f.BoolVar(&asJSON, "json", false, "print one JSON object")
	f.BoolVar(&asIs, "as-is", false, "show the file as it stands, without ONNX Runtime")
	f.IntVar(&o.target, "cut", 0, "operators wanted, 0 for one at every node")
	f.IntVar(&o.batch, "batch", 1, "batch size that live bytes and times are given for")
	f.IntVar(&o.threads, "threads", 1, "intra-op threads that times are given for")
	return cmd
}

// printJSON writes v as the one JSON object that a command prints.
func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// metric writes a number with at most four digits and the prefix of its
// magnitude before the unit.
func metric(n int64, unit string) string {
	v, prefix := float64(n), ""
	for _, p := range []string{"k", "M", "G", "T"} {
		if v < 999.5 {
			break
		}
		v, prefix = v/1000, p
	}
	digits := 0
	if v < 99.95 && prefix != "" {
		digits = 1
	}
	return strings.TrimSpace(fmt.Sprintf("%.*f %s%s", digits, v, prefix, unit))
}

// fileSize returns the size of a file, 0 if it cannot be had.
func fileSize(path string) int64 {
	info, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return info.Size()
}

type inspectOptions struct {
	target, batch, threads int
}

// inspection is what models inspect shows.
type inspection struct {
	Path      string        `json:"path"`
	Bytes     int64         `json:"bytes"`
	Hash      string        `json:"hash"`
	Inputs    []tensorRow   `json:"inputs"`
	Outputs   []tensorRow   `json:"outputs"`
	Batch     int           `json:"batch,omitempty"`
	SeqLen    int           `json:"seq_len,omitempty"`
	Threads   int           `json:"threads,omitempty"`
	ORT       string        `json:"ort_version,omitempty"`
	NotRun    string        `json:"not_run,omitempty"` // why there are no times and no bytes
	Operators []operatorRow `json:"operators"`
}

type tensorRow struct {
	Name string `json:"name"`
	Type string `json:"type"`
}

// operatorRow is an operator and the cut behind it.
type operatorRow struct {
	Index     int     `json:"index"`
	Type      string  `json:"type"`
	Name      string  `json:"name"`
	Nodes     int     `json:"nodes"`
	Alive     int     `json:"alive_values,omitempty"`
	LiveBytes int64   `json:"live_bytes"` // -1 if not known
	Micros    float64 `json:"us,omitempty"`
}

// asIs reads the file alone.
func (o *inspectOptions) asIs(path string) (*inspection, error) {
	f, err := models.Open(path, models.DefaultLimits())
	if err != nil {
		return nil, err
	}
	defer f.Close()
	m, err := f.Model(path)
	if err != nil {
		return nil, err
	}
	in := describe(m)
	for k, alive := range f.Graph.Index().Cuts() {
		if k > 0 {
			in.Operators[k-1].Alive = len(alive)
		}
	}
	return in, nil
}

// optimized loads the model as a worker does and runs it on zeros.
func (o *inspectOptions) optimized(path string) (*inspection, error) {
	lib, err := openORT()
	if err != nil {
		return nil, err
	}
	env, err := lib.NewEnv(ort.EnvOptions{IntraThreads: o.threads, SharedArena: true, LogLevel: ort.LogError})
	if err != nil {
		return nil, err
	}
	defer env.Close()
	cache, err := cacheDir("optimized")
	if err != nil {
		return nil, err
	}
	m, err := segments.OpenModel(env, segments.Config{
		Path: path, CacheDir: cache, Target: o.target, Limits: models.DefaultLimits(),
	})
	if err != nil {
		return nil, err
	}
	defer m.Close()
	solo, warmErr := m.Warm(o.batch)
	in := describe(m.Model())
	in.Batch, in.SeqLen, in.Threads, in.ORT = o.batch, solo.SeqLen, o.threads, lib.Version()
	if warmErr != nil {
		in.NotRun = warmErr.Error()
	} else {
		for p, bytes := range m.LiveBytes(o.batch) {
			in.Operators[p].LiveBytes = bytes
			in.Operators[p].Micros = float64(solo.Nanos[p]) / 1e3
		}
	}
	return in, nil
}

func openORT() (*ort.Library, error) {
	path, err := ort.Find()
	if err != nil {
		return nil, err
	}
	return ort.Open(path)
}

func describe(m *models.Model) *inspection {
	in := &inspection{
		Path: m.Path, Bytes: fileSize(m.Path), Hash: m.Hash,
		Inputs: []tensorRow{}, Outputs: []tensorRow{}, Operators: []operatorRow{},
	}
	for _, t := range m.Inputs {
		in.Inputs = append(in.Inputs, tensorRow{t.Name, t.Type.String()})
	}
	for _, t := range m.Outputs {
		in.Outputs = append(in.Outputs, tensorRow{t.Name, t.Type.String()})
	}
	for i, op := range m.Operators {
		in.Operators = append(in.Operators, operatorRow{Index: i, Type: op.Type, Name: op.Name, Nodes: op.Nodes, LiveBytes: op.LiveBytes})
	}
	return in
}

// barWidth is how many characters the longest bar of live bytes takes.
const barWidth = 24

func (in *inspection) writeText(w io.Writer) error {
	fmt.Fprintf(w, "%s  (%s, sha256 %.12s…)\n", in.Path, metric(in.Bytes, "B"), in.Hash)
	for _, t := range in.Inputs {
		fmt.Fprintf(w, "  in   %-24s %s\n", t.Name, t.Type)
	}
	for _, t := range in.Outputs {
		fmt.Fprintf(w, "  out  %-24s %s\n", t.Name, t.Type)
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	switch {
	case in.NotRun != "":
		fmt.Fprintf(w, "%d operators; it does not run on zeros, so times and bytes are not known:\n  %s\n\n", len(in.Operators), in.NotRun)
		in.writeNodes(t)
	case in.Batch > 0:
		most := in.writeTotals(w)
		in.writeTimes(t, most)
	default:
		fmt.Fprintf(w, "%d operators, as the file has them\n\n", len(in.Operators))
		in.writeNodes(t)
	}
	return t.Flush()
}

// writeTotals writes a line for all operators and returns the most bytes that
// are alive at a cut, at least 1.
func (in *inspection) writeTotals(w io.Writer) int64 {
	var most int64 = 1
	var micros float64
	for _, op := range in.Operators {
		most = max(most, op.LiveBytes)
		micros += op.Micros
	}
	fmt.Fprintf(w, "%d operators at batch %d", len(in.Operators), in.Batch)
	if in.SeqLen > 0 {
		fmt.Fprintf(w, ", sequence length %d", in.SeqLen)
	}
	total := time.Duration(micros * float64(time.Microsecond)).Round(time.Microsecond)
	fmt.Fprintf(w, ", intra-op threads %d: %v in all, at most %.0f KiB alive at a cut\n\n", in.Threads, total, float64(most)/1024)
	return most
}

func (in *inspection) writeTimes(w io.Writer, most int64) {
	fmt.Fprintln(w, "#\toperator\tus\tlive KiB after\t\tname")
	for _, op := range in.Operators {
		bar := strings.Repeat("█", int(max(op.LiveBytes, 0)*barWidth/most))
		fmt.Fprintf(w, "%d\t%s\t%.0f\t%.0f\t%s\t%s\n", op.Index, op.Type, op.Micros, float64(op.LiveBytes)/1024, bar, op.Name)
	}
}

func (in *inspection) writeNodes(w io.Writer) {
	fmt.Fprintln(w, "#\toperator\tvalues alive after\tname")
	for _, op := range in.Operators {
		alive := "?"
		if in.Batch == 0 {
			alive = strconv.Itoa(op.Alive)
		}
		fmt.Fprintf(w, "%d\t%s\t%s\t%s\n", op.Index, op.Type, alive, op.Name)
	}
}

// zooSeed is the seed of the weights that the zoo's models get unless another
// is asked for.
const zooSeed = 1

// cacheDir returns the folder for files of this kind: below the cache that
// systemd gives, else the user's.
func cacheDir(kind string) (string, error) {
	if dir := config.SystemdFolder("CACHE_DIRECTORY"); dir != "" {
		return filepath.Join(dir, kind), nil
	}
	base, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("no cache folder: %w; set XDG_CACHE_HOME", err)
	}
	return filepath.Join(base, "overlapd", kind), nil
}

// modelPath returns the file of a model given as a path or as the name of a
// model of the zoo, which is built if it is not there yet.
func modelPath(name string) (string, error) {
	name = strings.TrimPrefix(name, "zoo:")
	if _, ok := zoo.Lookup(name); !ok {
		if _, err := os.Stat(name); err != nil {
			return "", fmt.Errorf("%q is neither a file nor a model of the zoo; see overlapd models list", name)
		}
		return name, nil
	}
	dir, err := cacheDir("models")
	if err != nil {
		return "", err
	}
	return buildZoo(name, dir, zooSeed)
}

// buildZoo builds a model of the zoo, with a progress bar on a terminal.
func buildZoo(name, dir string, seed uint64) (string, error) {
	bar := newBar("building " + name)
	path, err := zoo.Build(name, dir, seed, func(done, total int64) {
		bar.ChangeMax64(total)
		_ = bar.Set64(done) // the bar is for looks
	})
	_ = bar.Exit()
	return path, err
}

// newBar returns a progress bar of bytes on stderr that is silent unless that
// is a terminal.
func newBar(what string) *progressbar.ProgressBar {
	return barOf(what, progressbar.OptionShowBytes(true))
}

// newCountBar returns one of things, which says itself how long it takes.
func newCountBar(what string) *progressbar.ProgressBar {
	return barOf(what, progressbar.OptionShowCount(), progressbar.OptionSetElapsedTime(false), progressbar.OptionSetPredictTime(false))
}

func barOf(what string, options ...progressbar.Option) *progressbar.ProgressBar {
	to := io.Discard
	if term.IsTerminal(int(os.Stderr.Fd())) {
		to = os.Stderr
	}
	return progressbar.NewOptions64(1, append(options,
		progressbar.OptionSetDescription(what),
		progressbar.OptionSetWriter(to),
		progressbar.OptionClearOnFinish(),
	)...)
}
