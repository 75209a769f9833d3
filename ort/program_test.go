package ort

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/overlapd/overlapd/models"
)

// chain returns a program of n additions, each of the last result and x, over
// buffers of ours. sums[i] is what step i writes.
func chain(t testing.TB, e *Env, n int, x *Value) (p *Program, sums [][]float32) {
	t.Helper()
	s := newSessionWith(t, e, add(), SessionOptions{LogID: "add"})
	sessions := make([]*Session, n)
	for i := range sessions {
		sessions[i] = s
	}
	p, err := NewProgram(sessions)
	if err != nil {
		t.Fatal(err)
	}
	closeAfter(t, p)
	last := x
	for i := range n {
		out, sum := floats(t, e, x.Shape())
		p.SetInput(i, 0, last)
		p.SetInput(i, 1, x)
		p.SetOutput(i, 0, out)
		sums, last = append(sums, sum), out
	}
	return p, sums
}

func TestProgramRun(t *testing.T) {
	e := openEnv(t, EnvOptions{IntraThreads: 1})
	x, _ := floats(t, e, []int64{2}, 1, 2)
	p, sums := chain(t, e, 3, x)

	reached, err := p.Run(0, 2, nil)
	if err != nil || reached != 2 {
		t.Fatalf("reached %d, %v", reached, err)
	}
	if diff := cmp.Diff([][]float32{{2, 4}, {3, 6}, {0, 0}}, sums); diff != "" {
		t.Error(diff)
	}
	reached, err = p.Run(reached, 3, nil)
	if err != nil || reached != 3 {
		t.Fatalf("reached %d, %v", reached, err)
	}
	if diff := cmp.Diff([]float32{4, 8}, sums[2]); diff != "" {
		t.Error(diff)
	}
}

func TestProgramStops(t *testing.T) {
	e := openEnv(t, EnvOptions{IntraThreads: 1})
	x, _ := floats(t, e, []int64{1}, 1)
	p, sums := chain(t, e, 2, x)
	stop := new(uint32)
	atomic.StoreUint32(stop, 1)
	reached, err := p.Run(1, 2, stop)
	if err != nil || reached != 1 || sums[1][0] != 0 {
		t.Errorf("stopped at %d with %v and result %v", reached, err, sums[1][0])
	}
	atomic.StoreUint32(stop, 0)
	reached, err = p.Run(0, 2, stop)
	if err != nil || reached != 2 || sums[1][0] != 3 {
		t.Errorf("reached %d with %v and result %v", reached, err, sums[1][0])
	}
}

// A step that writes to the memory of the stop flag stops the program at the
// boundary that follows: the flag is read before each step, not once.
func TestProgramStopsInTheMiddle(t *testing.T) {
	e := openEnv(t, EnvOptions{IntraThreads: 1})
	x, _ := floats(t, e, []int64{1}, 1)
	p, _ := chain(t, e, 4, x)
	memory := mapped(t, 4)
	flag, err := e.TensorOn(memory, models.Float32, []int64{1})
	if err != nil {
		t.Fatal(err)
	}
	closeAfter(t, flag)
	p.SetOutput(1, 0, flag)
	reached, err := p.Run(0, 4, flagOn(memory))
	if err != nil || reached != 2 {
		t.Errorf("reached %d, %v", reached, err)
	}
}

func TestProgramError(t *testing.T) {
	e := openEnv(t, EnvOptions{IntraThreads: 1})
	x, _ := floats(t, e, []int64{2}, 1, 2)
	three, _ := floats(t, e, []int64{3})
	p, sums := chain(t, e, 3, x)
	p.SetInput(1, 1, three)

	reached, err := p.Run(0, 3, nil)
	var said *Error
	if reached != 1 || !errors.As(err, &said) || !strings.HasPrefix(err.Error(), "step 1 (add): ") {
		t.Errorf("reached %d, %v", reached, err)
	}
	if diff := cmp.Diff([][]float32{{2, 4}, {0, 0}, {0, 0}}, sums); diff != "" {
		t.Error(diff)
	}
	p.SetInput(1, 1, x)
	if reached, err = p.Run(reached, 3, nil); err != nil || reached != 3 {
		t.Errorf("after the repair: reached %d, %v", reached, err)
	}
	for _, span := range [][2]int{{-1, 2}, {2, 1}, {0, 4}} {
		if _, err := p.Run(span[0], span[1], nil); err == nil {
			t.Errorf("steps %v ran", span)
		}
	}
	if reached, err = p.Run(2, 2, nil); err != nil || reached != 2 {
		t.Errorf("no step at all: reached %d, %v", reached, err)
	}
}

func TestProgramOwnedOutputs(t *testing.T) {
	e := openEnv(t, EnvOptions{IntraThreads: 1})
	find := newSession(t, e, nonZero())
	keep := newSession(t, e, unary("Identity", tensorOf(models.Int64, 1, "k")))
	p, err := NewProgram([]*Session{find, keep})
	if err != nil {
		t.Fatal(err)
	}
	closeAfter(t, p)
	x, data := floats(t, e, []int64{4}, 0, 5, 0, 7)
	p.SetInput(0, 0, x)
	p.Link(1, 0, 0, 0)
	if _, err := p.Run(1, 2, nil); err == nil {
		t.Error("a step ran without its input")
	}
	for _, want := range []int64{2, 3, 0} {
		if _, err := p.Run(0, 2, nil); err != nil {
			t.Fatal(err)
		}
		lent := p.Output(1, 0)
		if diff := cmp.Diff([]int64{1, want}, lent.Shape()); diff != "" {
			t.Error(diff)
		}
		if err := lent.Close(); err != nil {
			t.Error(err)
		}
		if want == 2 {
			data[0] = 1
		} else {
			clear(data)
		}
	}

	p.Drop(0, 0)
	p.Drop(1, 0)
	if p.Output(0, 0) != nil || p.Output(1, 0) != nil {
		t.Error("a dropped output is still there")
	}
	if err := p.DropAfter(1, 0, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Run(0, 2, nil); err != nil {
		t.Fatal(err)
	}
	if p.Output(0, 0) != nil || p.Output(1, 0) == nil {
		t.Error("after its last user the intermediate is gone, the result is not")
	}
}

func TestProgramSetOutput(t *testing.T) {
	e := openEnv(t, EnvOptions{IntraThreads: 1})
	x, _ := floats(t, e, []int64{1}, 1)
	y, got := floats(t, e, []int64{1})
	p, err := NewProgram([]*Session{newSession(t, e, unary("Neg", tensorOf(models.Float32, "n")))})
	if err != nil {
		t.Fatal(err)
	}
	closeAfter(t, p)
	p.SetInput(0, 0, x)
	run := func() {
		t.Helper()
		if _, err := p.Run(0, 1, nil); err != nil {
			t.Fatal(err)
		}
	}
	run()
	p.SetOutput(0, 0, y)
	run()
	if got[0] != -1 {
		t.Error("the output is not in the buffer it was given")
	}
	closed, err := e.NewTensor(models.Float32, []int64{1})
	if err != nil {
		t.Fatal(err)
	}
	_ = closed.Close()
	p.SetOutput(0, 0, closed) // as good as nil
	run()
	if v := p.Output(0, 0); v == nil || len(got) != 1 || got[0] != -1 {
		t.Error("the output was not handed back to the runtime")
	}
}

func TestProgramRunTimed(t *testing.T) {
	e := openEnv(t, EnvOptions{IntraThreads: 1})
	x, _ := floats(t, e, []int64{1 << 16}, 1)
	p, _ := chain(t, e, 3, x)
	nanos := []int64{-1, -1, -1}
	reached, err := p.RunTimed(1, 3, nil, nanos)
	if err != nil || reached != 3 {
		t.Fatalf("reached %d, %v", reached, err)
	}
	if nanos[0] != -1 || nanos[1] <= 0 || nanos[2] <= 0 {
		t.Errorf("the times are %v", nanos)
	}
	if _, err := p.RunTimed(0, 3, nil, nanos[:2]); err == nil {
		t.Error("three times fitted into two elements")
	}
}

func TestProgramDoesNotAllocate(t *testing.T) {
	e := openEnv(t, EnvOptions{IntraThreads: 1})
	x, _ := floats(t, e, []int64{4}, 1)
	y, _ := floats(t, e, []int64{4}, 2)
	p, _ := chain(t, e, 8, x)
	stop := new(uint32)
	const steps = 8
	nanos := make([]int64, steps)
	allocations := testing.AllocsPerRun(100, func() {
		p.SetInput(0, 0, y)
		if reached, err := p.Run(0, steps, stop); err != nil || reached != steps {
			t.Fatal(reached, err)
		}
		if _, err := p.RunTimed(0, steps, stop, nanos); err != nil {
			t.Fatal(err)
		}
	})
	if allocations != 0 {
		t.Errorf("%v allocations per run", allocations)
	}
}

func TestNewProgramErrors(t *testing.T) {
	if _, err := NewProgram(nil); err == nil {
		t.Error("a program without a step was made")
	}
	e := openEnv(t, EnvOptions{IntraThreads: 1})
	open := newSession(t, e, add())
	closed, err := e.NewSession(add().encode(), SessionOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_ = closed.Close()
	if _, err := NewProgram([]*Session{open, closed}); !errors.Is(err, ErrClosed) {
		t.Errorf("a closed session gives %v", err)
	}
}
