package export

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/overlapd/overlapd/models/zoo"
)

// zooFolder returns the folder of a model of the zoo, built once.
var zooFolder = sync.OnceValue(func() string {
	dir, err := os.MkdirTemp("", "export")
	if err != nil {
		panic(err)
	}
	for _, name := range []string{"text_encoder", "text_classifier"} {
		if _, err := zoo.Build(name, dir, 1, nil); err != nil {
			panic(err)
		}
	}
	return dir
})

func TestMain(m *testing.M) {
	code := m.Run()
	os.RemoveAll(zooFolder())
	os.Exit(code)
}

var auto = Settings{Pooling: Auto, Normalize: Auto, Lengths: []int{16, 64}}

// exported writes files, and the tokenizer of the zoo, and returns the path of their model.
func exported(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	tokenizer, err := os.ReadFile(filepath.Join(zooFolder(), "text_encoder", "tokenizer.json"))
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{"tokenizer.json": string(tokenizer)}
	maps.Copy(all, files)
	for name, content := range all {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(dir, "model.onnx")
}

func TestZoo(t *testing.T) {
	encoder, err := Read(filepath.Join(zooFolder(), "text_encoder", "model.onnx"), auto)
	if err != nil || encoder.Pooling != PoolMean || !encoder.Normalize || encoder.Limit != 512 || encoder.Vocabulary < 5000 || len(encoder.Labels) != 0 {
		t.Errorf("got %v %+v", err, encoder)
	}
	classifier, err := Read(filepath.Join(zooFolder(), "text_classifier", "model.onnx"), auto)
	if err != nil || !slices.Equal(classifier.Labels, []string{"negative", "neutral", "positive"}) {
		t.Errorf("got %v %+v", err, classifier)
	}
}

// The files decide what the settings leave open.
func TestModules(t *testing.T) {
	const transformer = `{"path":"","type":"sentence_transformers.models.Transformer"}`
	module := func(path, kind string) string {
		return `{"idx":1,"name":"1","path":"` + path + `","type":"sentence_transformers.models.` + kind + `"}`
	}
	list := func(modules ...string) string {
		return "[" + strings.Join(append([]string{transformer}, modules...), ",") + "]"
	}
	const pooling = "1_Pooling/config.json"
	for name, test := range map[string]struct {
		files     map[string]string
		settings  Settings
		pooling   string
		normalize bool
		fault     string
	}{
		"none":          {nil, auto, PoolMean, true, ""},
		"only pooling":  {map[string]string{pooling: `{"pooling_mode_cls_token":true,"pooling_mode_mean_tokens":false}`}, auto, PoolCLS, true, ""},
		"no normalize":  {map[string]string{"modules.json": list(module("1_Pooling", "Pooling")), pooling: `{"pooling_mode_lasttoken":true}`}, auto, PoolLast, false, ""},
		"newer":         {map[string]string{"modules.json": list(module("1_Pooling", "Pooling"), module("2", "Normalize")), pooling: `{"pooling_mode":"cls"}`}, auto, PoolCLS, true, ""},
		"another place": {map[string]string{"modules.json": list(module("p", "Pooling")), "p/config.json": `{"pooling_mode_cls_token":true}`}, auto, PoolCLS, false, ""},
		"settings": {map[string]string{"modules.json": list(module("x", "Dense")), pooling: `{"pooling_mode_max_tokens":true}`},
			Settings{Pooling: PoolNone, Normalize: "yes"}, PoolNone, true, ""},
		"dense":           {map[string]string{"modules.json": list(module("x", "Dense"))}, auto, "", false, `module "Dense" is not supported`},
		"maximum":         {map[string]string{pooling: `{"pooling_mode_max_tokens":true}`}, auto, "", false, "is not supported: set pooling"},
		"two":             {map[string]string{pooling: `{"pooling_mode_cls_token":true,"pooling_mode_mean_tokens":true}`}, auto, "", false, "is not supported: set pooling"},
		"outside":         {map[string]string{"modules.json": list(module("../../etc", "Pooling"))}, auto, "", false, "leads out of the folder"},
		"no JSON":         {map[string]string{"modules.json": "["}, auto, "", false, "modules.json: "},
		"labels":          {map[string]string{"config.json": `{"id2label":{"0":"a","2":"b"}}`}, auto, "", false, `the class "2"`},
		"label no number": {map[string]string{"config.json": `{"id2label":{"a":"a"}}`}, auto, "", false, `the class "a"`},
		"config":          {map[string]string{"config.json": `[]`}, auto, "", false, "config.json: "},
		"tokenizer":       {map[string]string{"tokenizer.json": `{}`}, auto, "", false, "tokenizer.json: "},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Read(exported(t, test.files), test.settings)
			switch {
			case test.fault != "":
				if err == nil || !strings.Contains(err.Error(), test.fault) {
					t.Errorf("%v, want %q", err, test.fault)
				}
			case err != nil || got.Pooling != test.pooling || got.Normalize != test.normalize:
				t.Errorf("got %v %+v", err, got)
			}
		})
	}
}

// A tokenizer is found beside the model, above a folder called onnx, or where the settings say.
func TestPlaces(t *testing.T) {
	model := exported(t, nil)
	dir := filepath.Dir(model)
	elsewhere := filepath.Join(t.TempDir(), "model.onnx")
	named := auto
	named.Tokenizer = filepath.Join(dir, "tokenizer.json")
	for _, test := range []struct {
		model    string
		settings Settings
		found    bool
	}{{model, auto, true}, {filepath.Join(dir, "onnx", "model.onnx"), auto, true}, {filepath.Join(dir, "other", "model.onnx"), auto, false}, {elsewhere, auto, false}, {elsewhere, named, true}} {
		if got, err := Read(test.model, test.settings); err != nil || (got != nil) != test.found {
			t.Errorf("%s: got %v, %v", test.model, got, err)
		}
	}
	named.Tokenizer = elsewhere
	if _, err := Read(model, named); err == nil {
		t.Error("a tokenizer that is not there")
	}
}

// The hash is that of everything that changes a result.
func TestHash(t *testing.T) {
	model := exported(t, map[string]string{"config.json": `{"vocab_size":5}`})
	seen := map[string]bool{}
	read := func(s Settings) string {
		got, err := Read(model, s)
		if err != nil {
			t.Fatal(err)
		}
		return got.Hash
	}
	other := auto
	other.Lengths = []int{16}
	seen[read(auto)], seen[read(auto)], seen[read(other)] = true, true, true
	if err := os.WriteFile(filepath.Join(filepath.Dir(model), "config.json"), []byte(`{"vocab_size":6}`), 0o644); err != nil {
		t.Fatal(err)
	}
	if seen[read(auto)] = true; len(seen) != 3 {
		t.Errorf("%d hashes, want 3", len(seen))
	}
}

func TestPadded(t *testing.T) {
	for _, test := range []struct {
		lengths                 []int
		limit, longest, n, want int
	}{
		{[]int{16, 64}, 0, 64, 3, 16}, {[]int{16, 64}, 0, 64, 16, 16}, {[]int{16, 64}, 0, 64, 17, 64}, {[]int{16, 64}, 40, 40, 17, 40},
		{nil, 100, 100, 7, 7}, {nil, 0, 0, 7, 7}, {[]int{16, 64}, 512, 64, 64, 64},
	} {
		text := &Text{Lengths: test.lengths, Limit: test.limit}
		if got := text.Padded(test.n); got != test.want || text.Longest() != test.longest {
			t.Errorf("%+v: padded to %d, longest %d", test, got, text.Longest())
		}
	}
}

// FuzzFiles reads files of any content beside a model.
func FuzzFiles(f *testing.F) {
	f.Add([]byte(`{"id2label":{"0":"a"},"max_position_embeddings":5}`), []byte(`[{"path":"1_Pooling","type":"x.Pooling"}]`), []byte(`{"pooling_mode_cls_token":true}`))
	f.Fuzz(func(t *testing.T, config, modules, pooling []byte) {
		model := exported(t, map[string]string{"config.json": string(config), "modules.json": string(modules), "1_Pooling/config.json": string(pooling)})
		got, err := Read(model, auto)
		if err == nil && (poolingModes[got.Pooling] == "" || got.Limit < 0 || got.Vocabulary < 0) {
			t.Errorf("got %+v", got)
		}
	})
}
