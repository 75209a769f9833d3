package ort

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/overlapd/overlapd/models"
)

// withAttributes is a model of one node, from inputs of type typ to an output of its type.
func withAttributes(op string, inputs string, typ models.Type, attributes ...[]byte) model {
	m := model{outputs: []typed{{"y", models.Type{Kind: models.KindTensor, Elem: typ.Elem}}}}
	names := strings.Fields(inputs)
	for _, name := range names {
		m.inputs = append(m.inputs, typed{name, typ})
	}
	m.nodes = []node{{op: op, inputs: names, outputs: []string{"y"}, attributes: attributes}}
	return m
}

func intAttribute(name string, v int64) []byte {
	return models.AppendInt(models.AppendInt(models.AppendString(nil, 1, name), 3, v), 20, 2)
}

func textAttribute(name, v string) []byte {
	return models.AppendInt(models.AppendString(models.AppendString(nil, 1, name), 4, v), 20, 3)
}

// Messages of ONNX Runtime say what is wrong, not where in its source that was found.
func TestMessages(t *testing.T) {
	e := openEnv(t, EnvOptions{})
	row, cube := tensorOf(models.Float32, "n"), tensorOf(models.Float32, 1, 1, 1)
	recurrent := [][]byte{intAttribute("layout", 1), intAttribute("hidden_size", 1)}
	for name, test := range map[string]struct {
		model  []byte
		inputs [][]float32
		want   string
	}{
		"condition": {model: withAttributes("GRU", "x w r", cube, recurrent...).encode(),
			want: "Exception during initialization: Batchwise recurrent operations (layout == 1) are not supported. If you need support create a github issue with justification."},
		"template": {model: withAttributes("RNN", "x w r", cube, recurrent...).encode(),
			want: "Exception during initialization: Batchwise recurrent operations (layout == 1) are not supported. If you need support create a github issue with justification."},
		"version": {model: append(add().encode(), models.AppendInt(nil, 1, 999)...),
			want: "Unsupported model IR version: 999, max supported IR version: "},
		"operators": {model: append(add().encode(), models.AppendField(nil, 8, models.AppendInt(nil, 2, 999))...),
			want: "ONNX Runtime only *guarantees* support for models stamped with official released onnx opset versions. Opset 999 is"},
		"lambda": {model: withAttributes("StringNormalizer", "x", tensorOf(models.String, "n"),
			textAttribute("locale", "xx_XX.UTF-8"), textAttribute("case_change_action", "LOWER")).encode(),
			want: "Exception during initialization: Failed to construct locale with name:xx_XX.UTF-8; install that locale (Debian: apt-get install locales-all)"},
		"short place": {model: withAttributes("MatMul", "x w", row).encode(), inputs: [][]float32{{1, 2}, {1, 2, 3}},
			want: "Non-zero status code returned while running MatMul node. Name:'' Status Message: MatMul dimension mismatch"},
		"at a run": {model: withAttributes("Add", "x w", row).encode(), inputs: [][]float32{{1, 2}, {1, 2, 3}},
			want: "Non-zero status code returned while running Add node. Name:'' Status Message: "},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := e.NewSession(test.model, SessionOptions{})
			if err == nil {
				defer s.Close()
				var values []*Value
				for _, in := range test.inputs {
					v, _ := floats(t, e, []int64{int64(len(in))}, in...)
					values = append(values, v)
				}
				_, err = s.Run(values, nil)
			}
			if err == nil || !strings.Contains(err.Error(), ": "+test.want) {
				t.Fatalf("got %v, want %s", err, test.want)
			}
			for _, remnant := range []string{"onnxruntime", "::", ".cc", ".h:", "was false", "std::", "\x1b", "\n", "const ", "  "} {
				if strings.Contains(err.Error(), remnant) {
					t.Errorf("%q is in: %v", remnant, err)
				}
			}
			t.Log(err)
		})
	}
}

// Those of a GPU and of rare faults cannot be had here.
func TestClean(t *testing.T) {
	const source = "/onnxruntime_src/onnxruntime/core/"
	for said, want := range map[string]string{
		"":                        "",
		"no such node (Relu_3)":   "no such node (Relu_3)",
		" two\n lines \n":         "two lines",
		"\x1b[1;31mred\x1b[m end": "red end",
		source + "providers/cuda/cuda_call.cc:129 std::conditional_t<THRW, void, onnxruntime::common::Status> onnxruntime::CudaCall(ERRTYPE, const char*, const char*, SUCCTYPE, const char*, const char*, int) [with ERRTYPE = cudaError; bool THRW = true; SUCCTYPE = cudaError; std::conditional_t<THRW, void, common::Status> = void] CUDA failure 2: out of memory ; GPU=0 ; hostname=h": "CUDA failure 2: out of memory ; GPU=0 ; hostname=h",
		"Name:'' Status Message: " + source + "framework/bfc_arena.cc:360 void* onnxruntime::BFCArena::AllocateRawInternal(size_t, bool, onnxruntime::Stream*) Failed to allocate memory for requested buffer of size 9\n":                                                                                                                                                                    "Name:'' Status Message: Failed to allocate memory for requested buffer of size 9",
		source + "graph/graph.cc:12 virtual onnxruntime::common::Status onnxruntime::Graph::operator()(int) const [with T = std::function<void(int)>] n > 0 was false. ":                                                                                                                                                                                                                      "n > 0 was false.",
		source + "a.h:1 f(int)::<lambda(float)> Failed: " + source + "b.cc:2 void g() inner\nStacktrace:\n#0 x":                                                                                                                                                                                                                                                                               "Failed: inner",
		source + "a.h:1 Nothing that looks like one. Not (this).": "Nothing that looks like one. Not (this).",
		"tensor_shape.cc:7 operator() x < y was false. Too many.": "Too many.",
		source + "a.cc:3 void f(":                                 "",
	} {
		if got := clean(said); got != want {
			t.Errorf("%q\nbecomes %q,\nwant    %q", said, got, want)
		}
	}
}

// What fails is returned as an error, and written nowhere else.
func TestNothingIsWritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "stderr")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	before, err := unix.Dup(2)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(before)
	if err := unix.Dup2(int(file.Fd()), 2); err != nil {
		t.Fatal(err)
	}
	defer unix.Dup2(before, 2)
	e := openEnv(t, EnvOptions{})
	if _, err := e.NewSession(withAttributes("GRU", "x w r", tensorOf(models.Float32, 1, 1, 1), intAttribute("layout", 1), intAttribute("hidden_size", 1)).encode(), SessionOptions{}); err == nil {
		t.Error("no error")
	}
	if text, err := os.ReadFile(path); err != nil || len(text) != 0 {
		t.Errorf("written: %s, %v", text, err)
	}
}
