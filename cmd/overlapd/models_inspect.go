package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/ort"
	"github.com/overlapd/overlapd/segments"
)

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
