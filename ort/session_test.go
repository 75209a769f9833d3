package ort

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/overlapd/overlapd/models"
)

func TestSessionRunErrors(t *testing.T) {
	e := openEnv(t, EnvOptions{IntraThreads: 1})
	s := newSession(t, e, add())
	two, _ := floats(t, e, []int64{2})
	three, _ := floats(t, e, []int64{3})
	whole, err := e.TensorOn(mapped(t, 16), models.Int64, []int64{2})
	if err != nil {
		t.Fatal(err)
	}
	closeAfter(t, whole)

	for _, test := range []struct {
		name            string
		inputs, outputs []*Value
		code            string // "" for an error of this package
	}{
		{"shapes that do not fit", []*Value{two, three}, nil, "fail"},
		{"element type", []*Value{two, whole}, nil, "invalid argument"},
		{"output too short", []*Value{three, three}, []*Value{two}, "invalid argument"},
		{"nil input", []*Value{two, nil}, nil, "invalid argument"},
		{"too few inputs", []*Value{two}, nil, ""},
		{"too many outputs", []*Value{two, two}, []*Value{two, two}, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			results, err := s.Run(test.inputs, test.outputs)
			if err == nil || results != nil {
				t.Fatalf("got %v and %v, want an error", results, err)
			}
			var said *Error
			if errors.As(err, &said) != (test.code != "") {
				t.Fatalf("got %#v", err)
			}
			if said != nil && (said.Code != test.code || said.Message == "") {
				t.Errorf("got code %v with message %q, want %v", said.Code, said.Message, test.code)
			}
		})
	}
}

func TestSessionInfo(t *testing.T) {
	e := openEnv(t, EnvOptions{IntraThreads: 1})
	element := models.Type{Kind: models.KindTensor, Elem: models.Float32}
	wire := tensorOf(models.Float32, 2, "length", "")
	for _, test := range []struct {
		name string
		typ  models.Type
		want TypeInfo
	}{
		{"tensor", wire, TypeInfo{Type: element, Dims: []models.Dim{{Value: 2}, {Value: -1, Name: "length"}, {Value: -1}}}},
		{"scalar", tensorOf(models.Int64), TypeInfo{Type: models.Type{Kind: models.KindTensor, Elem: models.Int64}}},
		{"any rank", models.Type{Kind: models.KindTensor, Elem: models.Bool}, TypeInfo{Type: models.Type{Kind: models.KindTensor, Elem: models.Bool}}},
		{"sequence", sequenceOf(wire), TypeInfo{Type: models.Type{Kind: models.KindSequence, Item: &element}}},
		{"optional sequence", optionalOf(sequenceOf(wire)), TypeInfo{Type: models.Type{
			Kind: models.KindOptional, Item: &models.Type{Kind: models.KindSequence, Item: &element},
		}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newSession(t, e, unary("Identity", test.typ))
			for name, got := range map[string][]TypeInfo{"x": s.Inputs(), "y": s.Outputs()} {
				test.want.Name = name
				if diff := cmp.Diff([]TypeInfo{test.want}, got); diff != "" {
					t.Error(diff)
				}
			}
		})
	}
}

func TestBadModels(t *testing.T) {
	e := openEnv(t, EnvOptions{IntraThreads: 1})
	unknown := unary("NoSuchOperator", tensorOf(models.Float32)).encode()
	good := add().encode()
	for name, model := range map[string][]byte{
		"nil":              nil,
		"empty":            {},
		"text":             []byte("not a model"),
		"truncated":        good[:len(good)/2],
		"unknown operator": unknown,
	} {
		t.Run(name, func(t *testing.T) {
			s, err := e.NewSession(model, SessionOptions{})
			var said *Error
			if s != nil || !errors.As(err, &said) {
				t.Fatalf("got %v and %v", s, err)
			}
		})
	}
	_, err := e.NewSessionFromFile(filepath.Join(t.TempDir(), "absent.onnx"), SessionOptions{})
	var said *Error
	if !errors.As(err, &said) || said.Code != "no such file" {
		t.Errorf("an absent file gives %v", err)
	}
}

func TestSessionOptions(t *testing.T) {
	e := openEnv(t, EnvOptions{IntraThreads: 1})
	path := filepath.Join(t.TempDir(), "optimized.onnx")
	chain := unary("Relu", tensorOf(models.Float32, 4))
	chain.nodes = []node{
		{op: "Identity", inputs: []string{"x"}, outputs: []string{"a"}},
		{op: "Identity", inputs: []string{"a"}, outputs: []string{"b"}},
		{op: "Relu", inputs: []string{"b"}, outputs: []string{"y"}},
	}
	s := newSessionWith(t, e, chain, SessionOptions{
		Optimize:           true,
		OptimizedModelPath: path,
		Config:             map[string]string{"session.disable_prepacking": "1"},
		LogID:              "chain",
	})
	if s.name != "chain" {
		t.Errorf("the name is %q", s.name)
	}
	optimized, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(optimized), "Identity") || !strings.Contains(string(optimized), "Relu") {
		t.Error("the optimized model is not the chain without its identities")
	}
	again, err := e.NewSessionFromFile(path, SessionOptions{})
	if err != nil {
		t.Fatal(err)
	}
	closeAfter(t, again)

	for _, wrong := range []SessionOptions{
		{Config: map[string]string{"": "1"}},
		{OptimizedModelPath: filepath.Join(path, "not a folder")},
	} {
		if _, err := e.NewSession(chain.encode(), wrong); err == nil {
			t.Errorf("%+v was taken", wrong)
		}
	}
}

func TestSessionRunsAtOnce(t *testing.T) {
	e := openEnv(t, EnvOptions{IntraThreads: 2})
	s := newSession(t, e, add())
	x, _ := floats(t, e, []int64{2}, 1, 2)
	var wait sync.WaitGroup
	for range 4 {
		wait.Go(func() {
			for range 50 {
				results, err := s.Run([]*Value{x, x}, nil)
				if err != nil {
					t.Error(err)
					return
				}
				if diff := cmp.Diff([]float32{2, 4}, values(t, results[0])); diff != "" {
					t.Error(diff)
				}
				_ = results[0].Close()
			}
		})
	}
	wait.Wait()
}

// Sessions are made by the hundreds, so none may leave memory behind.
func TestSessionsDoNotLeak(t *testing.T) {
	e := openEnv(t, EnvOptions{IntraThreads: 1})
	model := add().encode()
	create := func(n int) {
		for range n {
			s, err := e.NewSession(model, SessionOptions{LogID: "leak"})
			if err != nil {
				t.Fatal(err)
			}
			_ = s.Close()
			if _, err := e.NewSession(model[:20], SessionOptions{}); err == nil {
				t.Fatal("half a model was taken")
			}
		}
	}
	create(1000)
	before := residentBytes(t)
	const sessions = 4000
	create(sessions)
	if grown := residentBytes(t) - before; grown > leakSlackBytes {
		t.Errorf("%d sessions left %d bytes", sessions, grown)
	}
}

// TestNoMemoryPattern compares what a session takes for two intermediates that it needs
// at a time: by default one block for both, from the second run on.
func TestNoMemoryPattern(t *testing.T) {
	e := openEnv(t, EnvOptions{IntraThreads: 1})
	typ := tensorOf(models.Float32, 3)
	unary := func(op, in, out string) node { return node{op: op, inputs: []string{in}, outputs: []string{out}} }
	m := model{
		nodes: []node{
			unary("Neg", "x", "a"), unary("Tanh", "x", "b"), unary("Cos", "a", "c"), unary("Sin", "b", "d"),
			{op: "Add", inputs: []string{"c", "d"}, outputs: []string{"y"}},
		},
		inputs: []typed{{"x", typ}}, outputs: []typed{{"y", typ}},
	}
	x, _ := floats(t, e, []int64{3}, 1, 2, 3)
	y, _ := floats(t, e, []int64{3})
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var peaks [2]int64
	for i := range peaks {
		s := newSessionWith(t, e, m, SessionOptions{NoMemoryPattern: i == 1})
		for range 3 {
			before := e.ThreadBytes()
			peak := e.ThreadPeak()
			if _, err := s.Run([]*Value{x}, []*Value{y}); err != nil {
				t.Fatal(err)
			}
			peaks[i] = peak() - before
		}
	}
	if peaks[0] <= peaks[1] {
		t.Errorf("%d bytes with one block, %d without: nothing is turned off", peaks[0], peaks[1])
	}
}
