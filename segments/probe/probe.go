// Package probe measures one model in a process that may end with it: what it costs to run it
// operator by operator instead of as a whole, or how far the outputs of a device are from the CPU's.
// [Run] starts such a process, in which [Serve] measures.
package probe

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/overlapd/overlapd/internal/report"
	"github.com/overlapd/overlapd/internal/stats"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/ort"
	"github.com/overlapd/overlapd/segments"
	"github.com/overlapd/overlapd/segments/gpu"
	"github.com/overlapd/overlapd/segments/wire"
)

// Bounds of one measurement.
const (
	warmups   = 6 // runs before anything counts
	minRounds = 15
	maxRounds = 300

	// integers is how many different integers are made up, from 0. They may be
	// indices: BERT has two token types, and a mask two values.
	integers = 2

	// maxElements bounds one input; more would be a mistake in an option.
	maxElements = 1 << 30
)

// What a probe measures.
const (
	ModeTime  = "time"  // whole and cut in turns
	ModeWhole = "whole" // memory of the whole model
	ModeCut   = "cut"   // memory of the cut model
	ModeApart = "apart" // outputs of the cut model against those of the whole one on the CPU
)

// Spec is one measurement.
type Spec struct {
	Path     string        `json:"path"`
	Device   string        `json:"device,omitempty"` // CPU or CUDA, none for the CPU
	CUDA     wire.CUDASpec `json:"cuda,omitzero"`    // on a GPU
	CacheDir string        `json:"cache_dir"`
	Batch    int           `json:"batch"`
	SeqLen   int           `json:"seq_len"`
	Threads  int           `json:"threads"`
	Target   int           `json:"target"` // segments wanted, 0 for every node
	Seed     int64         `json:"seed"`
	Mode     string        `json:"mode"`
	Spin     bool          `json:"spin"`     // on the CPU
	Duration time.Duration `json:"duration"` // ModeTime only
}

// timing compares the whole model with the cut one. Times are medians. The models are
// equal if all outputs are the same to the bit.
type timing struct {
	Segments   int     `json:"segments"`
	Rounds     int     `json:"rounds"`
	WholeMS    float64 `json:"whole_ms"`
	CutMS      float64 `json:"cut_ms"`
	WholeMinMS float64 `json:"whole_min_ms"`
	CutMinMS   float64 `json:"cut_min_ms"`
	Equal      bool    `json:"equal"`
}

// Result is what a probe found.
type Result struct {
	timing
	DeviceMS          float64 `json:"device_ms"` // cut, the median between events on a GPU
	RSSBytes          int64   `json:"rss_bytes"`
	PeakBytes         int64   `json:"peak_bytes"`
	IntermediateBytes int64   `json:"intermediate_bytes"`
	LoadMS            float64 `json:"load_ms"`

	Deviation *Deviation         `json:"deviation,omitempty"` // ModeApart only
	Device    *wire.DeviceMemory `json:"device,omitempty"`    // cut models on a GPU only
}

// The devices of a measurement. No name means the CPU.
const (
	CPU  = "cpu"
	CUDA = "cuda"
)

type probe struct {
	spec    Spec
	onGPU   *gpu.Device // nil for the CPU
	env     *ort.Env
	cut     *segments.CutModel
	uncut   *segments.CutModel // on a GPU, the whole model in the form that is cut
	whole   *ort.Program       // on the CPU
	close   []func() error
	query   wire.QueryTensors
	batch   models.BatchID
	last    [][]byte // outputs of the last cut run
	ofUncut [][]byte
	result  Result
}

// Measure measures in this process. It may run once in a process, as memory that
// was given back to the allocator would count for the next.
func Measure(spec Spec) (r Result, err error) {
	p := &probe{spec: spec}
	if d := spec.Device; d != "" && d != CPU && d != CUDA {
		return r, fmt.Errorf("unknown device %q; there are %s and %s", d, CPU, CUDA)
	}
	defer func() {
		for _, c := range slices.Backward(p.close) {
			if cerr := c(); err == nil {
				err = cerr
			}
		}
	}()
	if err := p.load(); err != nil {
		return r, err
	}
	switch spec.Mode {
	case ModeTime:
		err = p.takeTurns()
	case ModeWhole:
		err = repeat(p.runWhole)
	case ModeCut:
		err = repeat(p.runCut)
	case ModeApart:
		err = p.apart()
	default:
		err = fmt.Errorf("unknown mode %q", spec.Mode)
	}
	if err != nil {
		return r, err
	}
	if p.cut != nil {
		p.result.IntermediateBytes = p.cut.IntermediateBytes()
	}
	if p.cut != nil && p.onGPU != nil {
		memory := p.cut.DeviceMemory()
		p.result.Device = &memory
	}
	p.result.RSSBytes, p.result.PeakBytes, err = residentBytes()
	return p.result, err
}

func (p *probe) load() error {
	lib, err := ort.Load()
	if err != nil {
		return err
	}
	p.env, err = lib.NewEnv(ort.EnvOptions{
		IntraThreads: p.spec.Threads, Spin: p.spec.Spin,
	})
	if err != nil {
		return err
	}
	p.close = append(p.close, p.env.Close)
	if err := p.openDevice(); err != nil {
		return err
	}
	started := time.Now()
	if p.spec.Mode != ModeWhole {
		if err := p.loadCut(); err != nil {
			return err
		}
	}
	if p.spec.Mode != ModeCut {
		if err := p.loadWhole(); err != nil {
			return err
		}
	}
	p.result.LoadMS = float64(time.Since(started)) / 1e6
	if err := p.makeInputs(); err != nil {
		return err
	}
	debug.FreeOSMemory()
	return nil
}

func (p *probe) openDevice() (err error) {
	if p.spec.Device != CUDA {
		return nil
	}
	if p.onGPU, err = gpu.Open(p.env, p.spec.CUDA); err != nil {
		return err
	}
	p.close = append(p.close, p.onGPU.Close)
	return nil
}

func (p *probe) loadCut() (err error) {
	if p.cut, err = p.open(p.spec.Target); err == nil {
		p.result.Segments = len(p.cut.Model().Operators)
	}
	return err
}

func (p *probe) open(target int) (*segments.CutModel, error) {
	m, err := segments.OpenModel(p.env, segments.Config{
		Path: p.spec.Path, CacheDir: p.spec.CacheDir, Target: target, Device: p.onGPU,
	})
	if err == nil {
		p.close = append(p.close, m.Close)
	}
	return m, err
}

// loadWhole loads the model as ONNX Runtime runs it on the CPU, which is what is right.
// On a GPU, where operators are fused before a model is cut, costs and bits are compared
// with the same form.
func (p *probe) loadWhole() (err error) {
	if p.onGPU != nil && p.spec.Mode != ModeApart {
		p.uncut, err = p.open(1)
		return err
	}
	s, err := p.env.NewSessionFromFile(p.spec.Path, ort.SessionOptions{Optimize: true})
	if err != nil {
		return err
	}
	p.close = append(p.close, s.Close)
	p.whole, err = ort.NewProgram([]*ort.Session{s})
	if err != nil {
		return err
	}
	p.close = append(p.close, p.whole.Close)
	return nil
}

func (p *probe) makeInputs() error {
	file, err := models.Open(p.spec.Path)
	if err != nil {
		return err
	}
	var inputs []models.TensorSpec
	for _, in := range file.Graph.FeedInputs() {
		inputs = append(inputs, models.TensorSpec{Name: in.Name, Type: in.Type})
	}
	if err := file.Close(); err != nil {
		return err
	}
	random := rand.New(rand.NewPCG(uint64(p.spec.Seed), 0))
	shapes := models.Fill(inputs, p.spec.Batch, p.spec.SeqLen)
	for i, in := range inputs {
		if err := p.makeInput(in, shapes[i], random); err != nil {
			return err
		}
	}
	return nil
}

func (p *probe) makeInput(in models.TensorSpec, shape []int64, random *rand.Rand) error {
	elem, n := in.Type.Elem, int64(1)
	for _, d := range shape {
		if n *= d; n > maxElements {
			return fmt.Errorf("input %q has over %d elements at this batch and sequence length", in.Name, maxElements)
		}
	}
	if elem.Bytes() == 0 || n == 0 {
		return fmt.Errorf("input %q is %s: no values can be made up for it", in.Name, in.Type)
	}
	data, err := unix.Mmap(-1, 0, int(n)*elem.Bytes(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return err
	}
	p.close = append(p.close, func() error { return unix.Munmap(data) })
	fill(data, elem, random)
	v, err := p.env.TensorOn(data, elem, shape)
	if err != nil {
		return err
	}
	p.close = append(p.close, v.Close)
	if p.whole != nil {
		p.whole.SetInput(0, len(p.query.Inputs), v)
	}
	p.query.Inputs = append(p.query.Inputs, models.Tensor{Type: elem, Shape: shape, Data: data})
	return nil
}

func fill(data []byte, elem models.DataType, random *rand.Rand) {
	size := elem.Bytes()
	for ; len(data) > 0; data = data[size:] {
		switch elem {
		case models.Float32:
			binary.LittleEndian.PutUint32(data, math.Float32bits(float32(random.NormFloat64())))
		case models.Float64:
			binary.LittleEndian.PutUint64(data, math.Float64bits(random.NormFloat64()))
		case models.Float16: // numbers in [1, 2)
			binary.LittleEndian.PutUint16(data, 0x3c00|uint16(random.IntN(1024)))
		default: // a small integer or truth value, whatever its size
			data[0] = byte(random.IntN(integers))
		}
	}
}

// takeTurns runs the whole and the cut model one after the other, in changing
// order, so that whatever slows the machine down slows both.
func (p *probe) takeTurns() error {
	if err := repeat(p.runBoth); err != nil {
		return err
	}
	p.result.Equal = len(p.last) > 0
	err := p.eachOutput(func(got, want []byte, _ models.DataType) error {
		p.result.Equal = p.result.Equal && bytes.Equal(got, want)
		return nil
	})
	if err != nil {
		return err
	}
	var device []time.Duration
	runCut := func() error {
		err := p.runCut()
		device = append(device, p.cut.DeviceTime())
		return err
	}
	deadline := time.Now().Add(p.spec.Duration)
	whole, cut, err := segments.TakeTurns(p.runWhole, runCut, func(n int) bool {
		return n < maxRounds && (n < minRounds || time.Now().Before(deadline))
	})
	if err != nil {
		return err
	}
	p.result.Rounds, p.result.DeviceMS = len(whole), ms(stats.Median(device))
	p.result.WholeMS, p.result.CutMS = ms(stats.Median(whole)), ms(stats.Median(cut))
	p.result.WholeMinMS, p.result.CutMinMS = ms(slices.Min(whole)), ms(slices.Min(cut))
	return nil
}

func ms(t time.Duration) float64 { return float64(t) / 1e6 }

// repeat runs something until it has settled.
func repeat(run func() error) error {
	for range warmups {
		if err := run(); err != nil {
			return err
		}
	}
	return nil
}

func (p *probe) runBoth() error {
	if err := p.runWhole(); err != nil {
		return err
	}
	return p.runCut()
}

func (p *probe) runWhole() error {
	if p.uncut != nil {
		return p.run(p.uncut, &p.ofUncut)
	}
	_, err := p.whole.Run(0, 1, nil)
	return err
}

func (p *probe) runCut() error { return p.run(p.cut, &p.last) }

// run runs a model and keeps the outputs, in memory of the run before.
func (p *probe) run(m *segments.CutModel, last *[][]byte) error {
	p.batch++
	if err := m.Start(p.batch, []wire.QueryTensors{p.query}); err != nil {
		return err
	}
	if _, err := m.Run(p.batch, 0, len(m.Model().Operators), nil); err != nil {
		return err
	}
	return m.Finish(p.batch, func(_, i int, _ models.DataType, _ []int64, bytes int64) ([]byte, error) {
		for len(*last) <= i {
			*last = append(*last, nil)
		}
		if int64(len((*last)[i])) != bytes {
			(*last)[i] = make([]byte, bytes)
		}
		return (*last)[i], nil
	})
}

func (p *probe) apart() error {
	if err := p.runBoth(); err != nil {
		return err
	}
	p.result.Deviation = new(Deviation)
	return p.eachOutput(p.result.Deviation.add)
}

// eachOutput visits the outputs of the last cut run with those of the whole model.
func (p *probe) eachOutput(visit func(got, want []byte, elem models.DataType) error) error {
	for i, got := range p.last {
		if p.uncut != nil {
			if err := visit(got, p.ofUncut[i], models.Undefined); err != nil {
				return fmt.Errorf("output %d: %w", i, err)
			}
			continue
		}
		v := p.whole.Output(0, i)
		if v == nil {
			return fmt.Errorf("output %d of the whole model is missing", i)
		}
		want, err := v.Bytes()
		if err == nil {
			err = visit(got, want, v.Elem())
		}
		if err != nil {
			return fmt.Errorf("output %d: %w", i, err)
		}
	}
	return nil
}

// residentBytes returns the resident memory of this process, now and at its highest.
func residentBytes() (now, peak int64, err error) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, 0, err
	}
	for line := range strings.Lines(string(status)) {
		key, value, _ := strings.Cut(line, ":")
		kib, _ := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
		switch key {
		case "VmRSS":
			now = kib << 10
		case "VmHWM":
			peak = kib << 10
		}
	}
	return now, peak, nil
}

// Deviation is how far the outputs of a model on a device are from those of the
// whole model on the CPU.
type Deviation struct {
	Outputs   int     `json:"outputs"`
	Elements  int64   `json:"elements"`
	Largest   float64 `json:"largest"`    // value of the CPU, without its sign
	MaxAbs    float64 `json:"max_abs"`    // largest difference
	MaxRel    float64 `json:"max_rel"`    // largest difference of an element, relative to it, or to a thousandth of the largest if that is more
	RelToMax  float64 `json:"rel_to_max"` // the largest difference relative to the largest value of its output
	NotFinite int64   `json:"not_finite"` // elements that are infinite or no number on one side only
}

// smallest is the part of the largest value of an output below which values
// count as large as that: what is left of a sum that cancels has no digits.
const smallest = 1e-3

func (d *Deviation) add(got, want []byte, elem models.DataType) error {
	size, number := decoder(elem)
	switch {
	case number == nil:
		return fmt.Errorf("elements of type %s cannot be compared", elem)
	case len(got) != len(want) || len(want)%size != 0:
		return fmt.Errorf("%d bytes on the device, %d on the CPU", len(got), len(want))
	}
	largest := 0.0
	for at := 0; at < len(want); at += size {
		if w := math.Abs(number(want[at:])); !math.IsInf(w, 0) && !math.IsNaN(w) {
			largest = max(largest, w)
		}
	}
	worst := 0.0
	for at := 0; at < len(want); at += size {
		g, w := number(got[at:]), number(want[at:])
		if g == w || math.IsNaN(g) && math.IsNaN(w) {
			continue
		}
		apart := math.Abs(g - w)
		if math.IsNaN(apart) || math.IsInf(apart, 0) {
			d.NotFinite++
			continue
		}
		worst = max(worst, apart)
		d.MaxRel = max(d.MaxRel, apart/max(math.Abs(w), smallest*largest, math.SmallestNonzeroFloat64))
	}
	d.Outputs++
	d.Elements += int64(len(want) / size)
	d.Largest, d.MaxAbs = max(d.Largest, largest), max(d.MaxAbs, worst)
	if worst > 0 {
		d.RelToMax = max(d.RelToMax, worst/max(largest, math.SmallestNonzeroFloat64))
	}
	return nil
}

// decoder returns the size of an element and what reads one, nil for unusual types.
func decoder(elem models.DataType) (int, func([]byte) float64) {
	little := binary.LittleEndian
	switch elem {
	case models.Float32:
		return 4, func(b []byte) float64 { return float64(math.Float32frombits(little.Uint32(b))) }
	case models.Float64:
		return 8, func(b []byte) float64 { return math.Float64frombits(little.Uint64(b)) }
	case models.Float16:
		return 2, func(b []byte) float64 { return models.DecodeFloat16(little.Uint16(b)) }
	case models.Int32:
		return 4, func(b []byte) float64 { return float64(int32(little.Uint32(b))) }
	case models.Int64:
		return 8, func(b []byte) float64 { return float64(int64(little.Uint64(b))) }
	}
	return 1, nil
}

// timeout is for the largest model of the zoo from a cold disk, and its largest batch.
const timeout = 10 * time.Minute

// Run does one measurement in a process of its own, which command starts.
// The process is killed when ctx ends.
func Run(ctx context.Context, command []string, spec Spec) (r Result, err error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	input, err := json.Marshal(spec)
	if err != nil {
		return r, err
	}
	var out, failure bytes.Buffer
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(input), &out, &failure
	cmd.Env = os.Environ()
	if strings.HasPrefix(spec.CUDA.Device, "GPU-") || strings.HasPrefix(spec.CUDA.Device, "MIG-") {
		// CUDA shows a process no MIG device but the first unless it names one.
		cmd.Env = append(cmd.Env, "CUDA_VISIBLE_DEVICES="+spec.CUDA.Device)
	}
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			return r, context.Cause(ctx)
		}
		if text := strings.TrimSpace(failure.String()); text != "" {
			return r, fmt.Errorf("%s (%w)", strings.TrimPrefix(strings.TrimPrefix(text, "overlapd: "), "overlapd-lab: "), err)
		}
		return r, err
	}
	err = json.Unmarshal(out.Bytes(), &r)
	return r, err
}

// Serve reads a [Spec], measures in this process, and writes a [Result].
func Serve(in io.Reader, out io.Writer) error {
	var spec Spec
	if err := json.NewDecoder(in).Decode(&spec); err != nil {
		return fmt.Errorf("no valid measurement on standard input: %w", err)
	}
	result, err := Measure(spec)
	if err != nil {
		return err
	}
	return report.WriteJSON(out, result)
}
