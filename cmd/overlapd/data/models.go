package data

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/overlapd/overlapd/internal/cli"
	"github.com/overlapd/overlapd/internal/report"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/models/zoo"
	"github.com/overlapd/overlapd/ort"
	"github.com/overlapd/overlapd/segments"
)

// modelsListCommand lists what needs no download, for a first try.
func modelsListCommand() *cobra.Command {
	var out cli.Output
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the zoo models",
		Long: `List prints the zoo: models that overlapd builds itself, with weights from a seed. They
have the operators and the cost of the real models, but are not trained, so use them
to try overlapd, not for answers. A service uses one with model = "zoo:NAME".`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			// The size is calculated, as no file exists before it is built.
			type row struct {
				zoo.Entry
				Bytes int64 `json:"bytes"`
			}
			var rows []row
			t := report.NewTable("NAME", "PRECISION", "PARAMETERS", "FILE", "DESCRIPTION")
			for _, name := range zoo.Names() {
				e, _ := zoo.Lookup(name)
				rows = append(rows, row{e, e.Size()})
				t.Row(e.Name, e.Precision, metric(e.Params, ""), metric(e.Size(), "B"), e.Summary)
			}
			return out.Print(cmd.OutOrStdout(), map[string]any{"models": rows}, t.WriteText)
		},
	}
	out.Flags(cmd.Flags())
	return cmd
}

// modelsBuildCommand is for those who want the files: the daemon builds what it serves by itself.
func modelsBuildCommand() *cobra.Command {
	var dir string
	var seed uint64
	cmd := &cobra.Command{
		Use:   "build NAME...",
		Short: "Write zoo models as ONNX files, with weights from a seed",
		Example: `  overlapd models build resnet50 bert-fp16 --out models
  overlapd models build vgg19 --seed 7`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, names []string) error {
			// Building takes minutes for the largest, so a misspelt name is found before.
			for _, name := range names {
				if _, ok := zoo.Lookup(name); !ok {
					return fmt.Errorf("the zoo has no model %q; overlapd models list shows all", name)
				}
			}
			for _, name := range names {
				path, err := cli.BuildZoo(name, dir, seed)
				if err != nil {
					return err
				}
				fmt.Fprintln(cmd.OutOrStdout(), path) // as soon as it is there
			}
			return nil
		},
	}
	cmd.Flags().StringVarP(&dir, "out", "o", ".", "folder for the files, created if needed")
	// The daemon's own files have this seed, so that both have the same hash and share measurements.
	cmd.Flags().Uint64Var(&seed, "seed", cli.ZooSeed, "seed of the weights")
	return cmd
}

// metric writes a number with at most four digits and the prefix of its magnitude.
func metric(n int64, unit string) string {
	// What would be rounded to 1000 gets the next prefix instead.
	v, prefix := float64(n), ""
	for _, p := range []string{"k", "M", "G", "T"} {
		if v < 999.5 {
			break
		}
		v, prefix = v/1000, p
	}
	// Three digits are enough to compare models, and keep the columns narrow.
	digits := 0
	if v < 99.95 && prefix != "" {
		digits = 1
	}
	return strings.TrimSpace(fmt.Sprintf("%.*f %s%s", digits, v, prefix, unit))
}

// modelsInspectCommand shows what the scheduler sees of a model: where it can be paused, and what a
// pause costs in memory. Check has it load models, too, in processes of their own.
func modelsInspectCommand() *cobra.Command {
	var out cli.Output
	var asIs bool
	o := inspectOptions{}
	cmd := &cobra.Command{
		Use:   "inspect NAME|FILE",
		Short: "Show the inputs, outputs, operators and cuts of a model",
		Long: `Inspect optimizes a model for this machine, cuts it into operators and runs it once on
zeros. Use it to see where a query can be paused, and how many bytes are live there:
the intermediates that a paused query keeps. With --as-is it shows the nodes of the
file without ONNX Runtime, and the values that are live at each cut.`,
		Example: `  overlapd models inspect resnet50
  overlapd models inspect model.onnx --cut 16 --json
  overlapd models inspect model.onnx --as-is`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			path, err := cli.ModelPath(args[0])
			if err != nil {
				return err
			}
			// Both describe a file in the same form, so that they can be compared.
			inspect := o.optimized
			if asIs {
				inspect = o.asIs
			}
			found, err := inspect(path)
			if err != nil {
				return err
			}
			return out.Print(cmd.OutOrStdout(), found, found.writeText)
		},
	}
	f := cmd.Flags()
	out.Flags(f)
	f.BoolVar(&asIs, "as-is", false, "show the file unchanged, without ONNX Runtime")
	f.IntVar(&o.target, "cut", 0, "number of operators to cut into, 0 to cut at every node")
	f.IntVar(&o.batch, "batch", 1, "batch size of live bytes and times")
	f.StringArrayVar(&o.libraries, "op-library", nil, "shared library `FILE` with custom operators of the model; it may be repeated")
	f.IntVar(&o.threads, "threads", 1, "intra-op threads of the times")
	return cmd
}

// inspectOptions are how a model is cut and run. A target of 0 cuts at every node. Libraries have
// its custom operators.
type inspectOptions struct {
	target, batch, threads int
	libraries              []string
}

// inspection is the JSON of models inspect. NotRun is why there are no times and bytes: a model may
// have conditions on its inputs that zeros do not meet, and serve well all the same.
type inspection struct {
	Path  string `json:"path"`
	Bytes int64  `json:"bytes"`
	// Hash is what measurements and caches know the file by, wherever it is.
	Hash    string      `json:"hash"`
	Inputs  []tensorRow `json:"inputs"`
	Outputs []tensorRow `json:"outputs"`
	// Batch, SeqLen and Threads are those of the run, left out where the file was only read.
	Batch   int    `json:"batch,omitempty"`
	SeqLen  int    `json:"seq_len,omitempty"`
	Threads int    `json:"threads,omitempty"`
	ORT     string `json:"ort_version,omitempty"`
	NotRun  string `json:"not_run,omitempty"`
	// Operators are in the order in which they run.
	Operators []operatorRow `json:"operators"`
}

// tensorRow is an input or an output.
type tensorRow struct {
	Name string `json:"name"`
	Type string `json:"type"`
}

// operatorRow is an operator and the cut behind it.
type operatorRow struct {
	Index int    `json:"index"`
	Type  string `json:"type"`
	Name  string `json:"name"`
	// Nodes are those of the file that the operator was made of.
	Nodes int `json:"nodes"`
	// Alive is how many values later operators need, and LiveBytes their size, -1 if unknown.
	Alive     int   `json:"alive_values,omitempty"`
	LiveBytes int64 `json:"live_bytes"`
	// Micros is what it takes alone.
	Micros float64 `json:"us,omitempty"`
}

// asIs describes the file as its author wrote it, which needs no ONNX Runtime and takes no time.
func (o *inspectOptions) asIs(path string) (*inspection, error) {
	f, err := models.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	libraries, err := models.HashFiles(o.libraries)
	if err != nil {
		return nil, err
	}
	in := describe(f.Model(models.HashWith(f.Hash(), libraries)))
	// Sizes are not known without running it. How many values are live still shows the narrow places.
	for p, alive := range f.Graph.Index().AliveBefore()[1:] {
		in.Operators[p].Alive = alive
	}
	return in, nil
}

// LiveBytes returns the hash of a model's file and, for one query, the bytes that are live behind each of
// its operators, of which there are cut, or as many as it has nodes. Libraries have its custom operators.
func LiveBytes(path string, cut int, libraries []string) (hash string, live []int64, err error) {
	o := inspectOptions{batch: 1, threads: 1, target: max(cut, 0), libraries: libraries}
	found, err := o.optimized(path)
	if err != nil {
		return "", nil, err
	}
	if found.NotRun != "" {
		return "", nil, fmt.Errorf("%s: its live bytes between operators are unknown, because it does not run on zeros: %s", path, found.NotRun)
	}
	for _, operator := range found.Operators {
		live = append(live, operator.LiveBytes)
	}
	return found.Hash, live, nil
}

// optimized loads the model as a worker does and runs it on zeros. The numbers are those of a worker on
// this machine with as many threads; ONNX Runtime makes different operators on others.
func (o *inspectOptions) optimized(path string) (*inspection, error) {
	lib, err := ort.Load()
	if err != nil {
		return nil, err
	}
	env, err := lib.NewEnv(ort.EnvOptions{IntraThreads: o.threads, OpLibraries: o.libraries})
	if err != nil {
		return nil, err
	}
	defer env.Close()
	cache, err := cli.CacheDir("optimized")
	if err != nil {
		return nil, err
	}
	m, err := segments.OpenModel(env, segments.Config{Path: path, CacheDir: cache, OpLibraries: o.libraries, Target: o.target})
	if err != nil {
		return nil, err
	}
	defer m.Close()
	// That it does not run is a result: how it is cut is known nevertheless.
	solo, warmErr := m.Warm(o.batch, 0, 0)
	in := describe(m.Model())
	// Times mean nothing without the batch, the length and the threads of the run.
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

// describe returns what is known of a model that did not run. Lists are never null in the JSON.
func describe(m *models.Model) *inspection {
	in := &inspection{
		Path: m.Path, Hash: m.Hash,
		Inputs: []tensorRow{}, Outputs: []tensorRow{}, Operators: []operatorRow{},
	}
	// People know a file by its size rather than by its hash.
	if info, err := os.Stat(m.Path); err == nil {
		in.Bytes = info.Size()
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

// writeText writes the inspection with as much as is known of its operators.
func (in *inspection) writeText(w io.Writer) error {
	var d report.Document
	d.Text("%s  (%s, sha256 %.12s…)", in.Path, metric(in.Bytes, "B"), in.Hash)
	for _, t := range in.Inputs {
		d.Text("  in   %-24s %s", t.Name, t.Type)
	}
	for _, t := range in.Outputs {
		d.Text("  out  %-24s %s", t.Name, t.Type)
	}
	// A model that does not run is listed like a file: the cuts are right, only what they cost is missing.
	switch {
	case in.NotRun != "":
		d.Text("%s; it does not run on zeros, so times and live bytes are unknown:", report.Count(len(in.Operators), "operator"))
		d.List(in.NotRun)
		d.Table(in.nodes())
	case in.Batch > 0:
		in.addTimes(&d)
	default:
		d.Text("%s, as the file has them", report.Count(len(in.Operators), "operator"))
		d.Table(in.nodes())
	}
	return d.WriteText(w)
}

// addTimes adds a table of all operators. The bars are for the eye: a model is paused at little cost
// where they are short.
func (in *inspection) addTimes(d *report.Document) {
	// At least 1, since it divides.
	var most int64 = 1
	var micros float64
	for _, op := range in.Operators {
		most = max(most, op.LiveBytes)
		micros += op.Micros
	}
	seq := ""
	if in.SeqLen > 0 {
		seq = fmt.Sprintf(", sequence length %d", in.SeqLen)
	}
	total := time.Duration(micros * float64(time.Microsecond)).Round(time.Microsecond)
	d.Text("%s at batch %d%s, intra-op threads %d: %v in all, at most %.0f KiB live at a cut",
		report.Count(len(in.Operators), "operator"), in.Batch, seq, in.Threads, total, float64(most)/1024)
	t := report.NewTable("#", "operator", "us", "live KiB after", "", "name")
	for _, op := range in.Operators {
		bar := strings.Repeat("█", int(max(op.LiveBytes, 0)*24/most))
		t.Rowf("%d\t%s\t%.0f\t%.0f\t%s\t%s", op.Index, op.Type, op.Micros, float64(op.LiveBytes)/1024, bar, op.Name)
	}
	d.Table(t)
}

// nodes returns a table of operators without times. Live values are known only of the file as it is.
func (in *inspection) nodes() *report.Table {
	t := report.NewTable("#", "operator", "live values after", "name")
	for _, op := range in.Operators {
		alive := "?"
		if in.Batch == 0 {
			alive = strconv.Itoa(op.Alive)
		}
		t.Rowf("%d\t%s\t%s\t%s", op.Index, op.Type, alive, op.Name)
	}
	return t
}
