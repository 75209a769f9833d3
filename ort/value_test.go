package ort

import (
	"errors"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"

	"github.com/overlapd/overlapd/models"
)

func flagOn(memory []byte) *uint32 { return (*uint32)(unsafe.Pointer(unsafe.SliceData(memory))) }

// residentBytes returns the process's memory without Go's garbage.
func residentBytes(t *testing.T) int64 {
	t.Helper()
	debug.FreeOSMemory()
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Fatal(err)
	}
	pages, err := strconv.ParseInt(strings.Fields(string(text))[1], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return pages * int64(os.Getpagesize())
}

func TestTensorOn(t *testing.T) {
	e := openEnv(t, EnvOptions{IntraThreads: 1})
	data := mapped(t, 64)
	for _, test := range []struct {
		name  string
		bytes int
		elem  models.DataType
		shape []int64
		ok    bool
	}{
		{"exact", 24, models.Float32, []int64{2, 3}, true},
		{"longer than needed", 64, models.Float32, []int64{2, 3}, true},
		{"scalar", 8, models.Float64, []int64{}, true},
		{"empty", 0, models.Float32, []int64{0, 3}, true},
		{"half", 4, models.Float16, []int64{2}, true},
		{"brain", 4, models.BFloat16, []int64{2}, true},
		{"two to a byte", 2, 22, []int64{4}, true},
		{"too short", 23, models.Float32, []int64{2, 3}, false},
		{"nothing for something", 0, models.Float32, []int64{1}, false},
		{"negative dimension", 64, models.Float32, []int64{-1}, false},
		{"overflow", 64, models.Float32, []int64{1 << 40, 1 << 40}, false},
		{"strings", 64, models.String, []int64{1}, false},
		{"no type", 64, models.Undefined, []int64{1}, false},
		{"unknown type", 64, 99, []int64{1}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			v, err := e.TensorOn(data[:test.bytes:test.bytes], test.elem, test.shape)
			if (err == nil) != test.ok {
				t.Fatalf("got %v", err)
			}
			if err != nil {
				return
			}
			closeAfter(t, v)
			if !v.IsTensor() || v.Kind() != models.KindTensor || !v.HasValue() || v.Elem() != test.elem {
				t.Errorf("a %v of %v", v.Kind(), v.Elem())
			}
			if diff := cmp.Diff(test.shape, v.Shape()); diff != "" {
				t.Error(diff)
			}
			if b, err := v.Bytes(); err != nil || b == nil {
				t.Errorf("the data is %v, %v", b, err)
			}
		})
	}
}

func TestEmptyTensorRuns(t *testing.T) {
	e := openEnv(t, EnvOptions{IntraThreads: 1})
	s := newSession(t, e, add())
	x, err := e.TensorOn(nil, models.Float32, []int64{0})
	if err != nil {
		t.Fatal(err)
	}
	closeAfter(t, x)
	results, err := s.Run([]*Value{x, x}, nil)
	if err != nil {
		t.Fatal(err)
	}
	closeAfter(t, results[0])
	if diff := cmp.Diff([]int64{0}, results[0].Shape()); diff != "" {
		t.Error(diff)
	}
	if got := values(t, results[0]); len(got) != 0 {
		t.Errorf("got %v", got)
	}
}

func TestStrings(t *testing.T) {
	e := openEnv(t, EnvOptions{IntraThreads: 1})
	s := newSession(t, e, unary("Identity", tensorOf(models.String, "n", 2)))
	want := [][]byte{[]byte("one"), {}, []byte("a\x00b\xff"), []byte(strings.Repeat("long", 100))}
	v, err := e.StringTensor(want, []int64{2, 2})
	if err != nil {
		t.Fatal(err)
	}
	closeAfter(t, v)
	results, err := s.Run([]*Value{v}, nil)
	if err != nil {
		t.Fatal(err)
	}
	closeAfter(t, results[0])
	got, err := results[0].Strings()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if _, err := v.Bytes(); err == nil {
		t.Error("a tensor of strings gave bytes")
	}
}

func TestStringsErrors(t *testing.T) {
	e := openEnv(t, EnvOptions{IntraThreads: 1})
	for _, shape := range [][]int64{{2}, {0}, {-1}, {1 << 40, 1 << 40}} {
		if v, err := e.StringTensor([][]byte{[]byte("one")}, shape); err == nil {
			t.Errorf("one string has shape %v", v.Shape())
		}
	}
	empty, err := e.StringTensor(nil, []int64{0, 3})
	if err != nil {
		t.Fatal(err)
	}
	closeAfter(t, empty)
	if got, err := empty.Strings(); err != nil || len(got) != 0 {
		t.Errorf("got %q, %v", got, err)
	}
	v, _ := floats(t, e, []int64{1})
	if _, err := v.Strings(); err == nil {
		t.Error("floats gave strings")
	}
}

func TestSequence(t *testing.T) {
	e := openEnv(t, EnvOptions{IntraThreads: 1})
	s := newSession(t, e, unary("Identity", sequenceOf(tensorOf(models.Float32, "n"))))
	a, _ := floats(t, e, []int64{1}, 1)
	b, _ := floats(t, e, []int64{2}, 2, 3)
	sequence, err := e.Sequence([]*Value{a, b})
	if err != nil {
		t.Fatal(err)
	}
	closeAfter(t, sequence)
	if sequence.Kind() != models.KindSequence || sequence.Elem() != models.Undefined || sequence.Shape() != nil {
		t.Errorf("a %v of %v %v", sequence.Kind(), sequence.Elem(), sequence.Shape())
	}
	results, err := s.Run([]*Value{sequence}, nil)
	if err != nil {
		t.Fatal(err)
	}
	closeAfter(t, results[0])
	items, err := results[0].Items()
	if err != nil {
		t.Fatal(err)
	}
	var got [][]float32
	for _, item := range items {
		closeAfter(t, item)
		got = append(got, values(t, item))
	}
	if diff := cmp.Diff([][]float32{{1}, {2, 3}}, got); diff != "" {
		t.Error(diff)
	}
	if _, err := a.Items(); err == nil {
		t.Error("a tensor gave items")
	}
}

func TestEmptyOptional(t *testing.T) {
	e := openEnv(t, EnvOptions{IntraThreads: 1})
	tensor := tensorOf(models.Float32, "n")
	floats := models.AppendField(nil, 1, models.AppendInt(nil, 1, int64(models.Float32))) // TypeProto
	attribute := models.AppendInt(models.AppendField(models.AppendString(nil, 1, "type"), 14, floats), 20, 13)
	constant := model{
		nodes:   []node{{op: "Optional", outputs: []string{"y"}, attributes: [][]byte{attribute}}},
		outputs: []typed{{"y", optionalOf(tensor)}},
	}
	none := newSession(t, e, constant)
	pass := newSession(t, e, unary("Identity", optionalOf(tensor)))
	results, err := none.Run(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	closeAfter(t, results[0])
	if results[0].HasValue() || results[0].Kind() != models.KindUnknown || results[0].Shape() != nil {
		t.Errorf("an empty optional has a value of kind %v", results[0].Kind())
	}
	if _, err := results[0].Bytes(); !errors.Is(err, errNoValue) {
		t.Errorf("an empty optional has bytes: %v", err)
	}
	if _, err := results[0].Items(); !errors.Is(err, errNoValue) {
		t.Errorf("an empty optional has items: %v", err)
	}
	if _, err := e.Sequence(results); !errors.Is(err, errNoValue) {
		t.Errorf("an empty optional is in a sequence: %v", err)
	}
	var said *Error
	if _, err := pass.Run(results, nil); !errors.As(err, &said) || said.Code != "invalid argument" {
		t.Errorf("an empty optional went into a session: %v", err)
	}
	p, err := NewProgram([]*Session{none, pass})
	if err != nil {
		t.Fatal(err)
	}
	closeAfter(t, p)
	p.Link(1, 0, 0, 0)
	if reached, err := p.Run(0, 2, nil); !errors.As(err, &said) || reached != 1 {
		t.Errorf("an empty optional went into step %d: %v", reached, err)
	}
}

func TestCloseTwice(t *testing.T) {
	e := openEnv(t, EnvOptions{IntraThreads: 1})
	v, err := e.NewTensor(models.Float32, []int64{1})
	if err != nil {
		t.Fatal(err)
	}
	s, err := e.NewSession(add().encode(), SessionOptions{})
	if err != nil {
		t.Fatal(err)
	}
	p, err := NewProgram([]*Session{s})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []closer{v, p, s} {
		if err := c.Close(); err != nil {
			t.Errorf("%T: %v", c, err)
		}
		if err := c.Close(); !errors.Is(err, ErrClosed) {
			t.Errorf("%T, the second time: %v", c, err)
		}
	}
	if _, err := v.Bytes(); !errors.Is(err, errNoValue) || v.IsTensor() || v.Shape() != nil {
		t.Errorf("a closed value: %v", err)
	}
	if _, err := p.Run(0, 1, nil); !errors.Is(err, ErrClosed) {
		t.Errorf("a closed program: %v", err)
	}
	if _, err := s.Run(nil, nil); !errors.Is(err, ErrClosed) {
		t.Errorf("a closed session: %v", err)
	}
}
