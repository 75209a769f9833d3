package ort

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/overlapd/overlapd/models"
)

// wiring is a program that can be made twice: step i has session kinds[i], its
// inputs are x (-1) or results of earlier steps.
type wiring struct {
	kinds  []int
	inputs [][]int
	given  []bool // whether the result lies in a buffer of ours
	drops  []int  // the step after which the result dies, -1 for never
}

func drawWiring(t *rapid.T, arity []int) wiring {
	var w wiring
	for i := range rapid.IntRange(1, 8).Draw(t, "steps") {
		kind := rapid.IntRange(0, len(arity)-1).Draw(t, "kind")
		in := make([]int, arity[kind])
		for k := range in {
			in[k] = rapid.IntRange(-1, i-1).Draw(t, "input")
		}
		w.kinds, w.inputs = append(w.kinds, kind), append(w.inputs, in)
		w.given, w.drops = append(w.given, rapid.Bool().Draw(t, "given")), append(w.drops, -1)
	}
	for i := range w.kinds {
		if !w.given[i] && rapid.Bool().Draw(t, "dies") {
			w.drops[i] = i
			for j := range w.inputs {
				if slices.Contains(w.inputs[j], i) {
					w.drops[i] = j
				}
			}
		}
	}
	return w
}

// build makes the program of w on x. It returns what to close after it.
func (w wiring) build(t failer, e *Env, p *Program, x *Value) (close func()) {
	buffers := make([]*Value, len(w.kinds))
	for i := range w.kinds {
		if w.given[i] {
			v, err := e.NewTensor(models.Float32, x.Shape())
			if err != nil {
				t.Fatal(err)
			}
			buffers[i] = v
			p.SetOutput(i, 0, v)
		}
		for k, from := range w.inputs[i] {
			switch {
			case from < 0:
				p.SetInput(i, k, x)
			case buffers[from] != nil:
				p.SetInput(i, k, buffers[from])
			default:
				p.Link(i, k, from, 0)
			}
		}
		if w.drops[i] >= 0 {
			if err := p.DropAfter(w.drops[i], i, 0); err != nil {
				t.Fatal(err)
			}
		}
	}
	return func() {
		for _, v := range append(buffers, nil) {
			if v != nil {
				_ = v.Close()
			}
		}
	}
}

type failer interface{ Fatal(...any) }

// TestBoundProgram compares programs that run through bindings with those that
// do not, bit by bit.
func TestBoundProgram(t *testing.T) {
	e := openEnv(t, EnvOptions{IntraThreads: 1})
	vector := tensorOf(models.Float32, "n")
	kinds := []*Session{
		newSession(t, e, add()), newSession(t, e, unary("Neg", vector)), newSession(t, e, unary("Tanh", vector)),
		newSession(t, e, unary("Softmax", vector)),
	}
	arity := []int{2, 1, 1, 1}
	x, numbers := floats(t, e, []int64{5})
	before := e.ArenaBytes()
	rapid.Check(t, func(rt *rapid.T) {
		w := drawWiring(rt, arity)
		var sessions []*Session
		for _, kind := range w.kinds {
			sessions = append(sessions, kinds[kind])
		}
		var results [2][][]byte
		for i, make := range []func([]*Session) (*Program, error){NewProgram, NewBoundProgram} {
			p, err := make(sessions)
			if err != nil {
				rt.Fatal(err)
			}
			closeBuffers := w.build(rt, e, p, x)
			for run := range 2 {
				copy(numbers, []float32{1, -2, float32(run), 0.25, 3})
				p.Synchronize(rapid.Bool().Draw(rt, "synchronizes"))
				if rapid.Bool().Draw(rt, "numbers") {
					if err := p.NumberGraphs(run); err != nil {
						rt.Fatal(err)
					}
				}
				p.Graphs(rapid.Bool().Draw(rt, "graphs")) // which the processor knows nothing of
				middle := rapid.IntRange(0, len(sessions)).Draw(rt, "middle")
				for _, span := range [][2]int{{0, middle}, {middle, len(sessions)}} {
					if reached, err := p.Run(span[0], span[1], new(uint32)); err != nil || reached != span[1] {
						rt.Fatalf("span %v: reached %d, %v", span, reached, err)
					}
				}
				for step := range sessions {
					results[i] = append(results[i], contents(rt, p.Output(step, 0)))
				}
			}
			if err := p.Close(); err != nil {
				rt.Fatal(err)
			}
			closeBuffers()
		}
		for i := range results[0] {
			if !bytes.Equal(results[0][i], results[1][i]) {
				rt.Fatalf("result %d of %+v is %x bound, %x not", i, w, results[1][i], results[0][i])
			}
		}
	})
	if n := e.ArenaBytes(); n != before {
		t.Errorf("%d bytes were in use before, %d now", before, n)
	}
}

func contents(t failer, v *Value) []byte {
	if v == nil {
		return nil
	}
	b, err := v.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Clone(b)
}

// TestBoundProgramHoldsNothing lets results die: the bindings must not keep
// them alive.
func TestBoundProgramHoldsNothing(t *testing.T) {
	e := openEnv(t, EnvOptions{IntraThreads: 1})
	s := newSession(t, e, unary("Neg", tensorOf(models.Float32, "n")))
	p, err := NewBoundProgram([]*Session{s, s})
	if err != nil {
		t.Fatal(err)
	}
	closeAfter(t, p)
	x, _ := floats(t, e, []int64{1 << 16})
	p.SetInput(0, 0, x)
	p.Link(1, 0, 0, 0)
	if err := p.DropAfter(1, 0, 0); err != nil {
		t.Fatal(err)
	}
	before := e.ArenaBytes()
	for _, want := range []int64{1 << 18, 0} {
		if want != 0 {
			_, err = p.Run(0, 2, nil)
		} else {
			p.Drop(0, 0)
			p.Drop(1, 0)
		}
		if n := e.ArenaBytes() - before; err != nil || n != want {
			t.Errorf("%d bytes in use, expected %d: %v", n, want, err)
		}
	}
	left := 0
	if _, err := p.Run(0, 2, nil); err != nil {
		t.Fatal(err)
	}
	for step := range 2 {
		if p.Output(step, 0) != nil {
			left++
		}
	}
	if left != 1 {
		t.Errorf("%d results are left, expected the last one", left)
	}
}

func TestBoundProgramErrors(t *testing.T) {
	e := openEnv(t, EnvOptions{IntraThreads: 1})
	s := newSessionWith(t, e, add(), SessionOptions{LogID: "add"})
	p, err := NewBoundProgram([]*Session{s})
	if err != nil {
		t.Fatal(err)
	}
	closeAfter(t, p)
	x, _ := floats(t, e, []int64{2}, 1, 2)
	three, _ := floats(t, e, []int64{3})
	p.SetInput(0, 0, x)
	if _, err := p.Run(0, 1, nil); err == nil || !strings.Contains(err.Error(), "y") {
		t.Errorf("a missing input: %v", err)
	}
	p.SetInput(0, 1, three)
	if _, err := p.Run(0, 1, nil); err == nil {
		t.Error("shapes that do not fit ran")
	}
	p.SetInput(0, 1, x)
	if _, err := p.Run(0, 1, nil); err != nil {
		t.Errorf("after the repair: %v", err)
	}
	if got := values(t, p.Output(0, 0)); !slices.Equal(got, []float32{2, 4}) {
		t.Errorf("got %v", got)
	}
	if _, err := NewBoundProgram(nil); err == nil {
		t.Error("a program without a step was made")
	}
}

// TestBoundSequences passes values that are not tensors.
func TestBoundSequences(t *testing.T) {
	e := openEnv(t, EnvOptions{IntraThreads: 1})
	item := tensorOf(models.Float32, 2)
	s := newSession(t, e, unary("Identity", sequenceOf(item)))
	p, err := NewBoundProgram([]*Session{s, s})
	if err != nil {
		t.Fatal(err)
	}
	closeAfter(t, p)
	x, _ := floats(t, e, []int64{2}, 1, 2)
	list, err := e.Sequence([]*Value{x, x})
	if err != nil {
		t.Fatal(err)
	}
	closeAfter(t, list)
	p.SetInput(0, 0, list)
	p.Link(1, 0, 0, 0)
	if _, err := p.Run(0, 2, nil); err != nil {
		t.Fatal(err)
	}
	items, err := p.Output(1, 0).Items()
	if err != nil || len(items) != 2 {
		t.Fatalf("%d items, %v", len(items), err)
	}
	for _, v := range items {
		closeAfter(t, v)
		if got := values(t, v); !slices.Equal(got, []float32{1, 2}) {
			t.Errorf("got %v", got)
		}
	}
}
