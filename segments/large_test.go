package segments

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/ort"
	"github.com/overlapd/overlapd/segments/wire"
)

// outside adds a tensor of floats whose data lie in a file, and returns its name.
func (g *graph) outside(name, location string, offset int64, dims ...int64) string {
	bytes := int64(4)
	var b []byte
	for _, d := range dims {
		b, bytes = models.AppendInt(b, 1, d), bytes*d
	}
	b = models.AppendString(models.AppendInt(b, 2, int64(models.Float32)), 8, name)
	for _, e := range [][2]string{{"location", location}, {"offset", strconv.FormatInt(offset, 10)}, {"length", strconv.FormatInt(bytes, 10)}} {
		b = models.AppendField(b, 13, models.AppendString(models.AppendString(nil, 1, e[0]), 2, e[1]))
	}
	g.parts.Initializers = append(g.parts.Initializers, models.AppendInt(b, 14, 1))
	return name
}

// weightyBytes is the size of each of the large weights of weighty.
const weightyBytes = 4 * 512 * 4

// weighty writes a model with weights in a file of their own, one of which is computed
// from others when it is optimized.
func weighty(t *testing.T) string {
	const rows, columns = 4, 512
	g := xGraph()
	for i, name := range list("w0", "w1", "w2") {
		g.outside(name, "weights", int64(i*rows*columns*4), rows, columns)
	}
	g.floats("small", []int64{1}, 0.5)
	g.node("MatMul", list("x", "w0"), list("a"))
	g.node("MatMul", list("x", "w1"), list("b"))
	g.node("Sub", list("w2", "w1"), list("folded"))
	g.node("MatMul", list("x", "folded"), list("c"))
	g.node("Add", list("a", "b"), list("ab"))
	g.node("Add", list("ab", "c"), list("abc"))
	g.node("Mul", list("abc", "small"), list("y"))
	g.output("y", models.Float32)
	path := g.write(t)
	values := make([]float32, 3*rows*columns)
	for i := range values {
		values[i] = float32(math.Sin(float64(i)))
	}
	if err := os.WriteFile(filepath.Join(filepath.Dir(path), "weights"), floatBytes(values...), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// weightsBeside returns the files of weights in a cache.
func weightsBeside(t *testing.T, cache string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(cache, "*.data"))
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// optimizeInto is how the model at path is optimized into a cache. None of its weights may
// stand in its optimized form.
func optimizeInto(t *testing.T, env *ort.Env, path, cache string) *optimizing {
	t.Helper()
	f, err := models.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	d := hostDevice{env}
	return &optimizing{env, d, f, 0, filepath.Join(cache, cacheName(f.Hash(), env.Library(), cacheKey(d, f)))}
}

func writeBeside(t *testing.T, env *ort.Env, path, cache string) error {
	t.Helper()
	return optimizeInto(t, env, path, cache).writeBeside()
}

// Weights in files of their own stay there: the cache has what was computed of them.
func TestWeightsStayOutside(t *testing.T) {
	path, cache := weighty(t), t.TempDir()
	openCut(t, openEnv(t), Config{Path: path, CacheDir: cache})
	files, err := filepath.Glob(filepath.Join(cache, "*"))
	if err != nil || len(files) != 1 {
		t.Fatalf("the cache holds %q, %v", files, err)
	}
	info, err := os.Stat(files[0])
	if err != nil {
		t.Fatal(err)
	}
	if size := info.Size(); size < weightyBytes || size >= 2*weightyBytes {
		t.Errorf("the optimized model has %d bytes, one tensor of weights has %d", size, weightyBytes)
	}
}

func TestWeightsOutsideAreTheSame(t *testing.T) {
	expectWhole(t, weighty(t), rows(t, 1), rows(t, 3))
}

// An optimized form whose weights are too many for one protobuf keeps them in a file beside
// it, and gives the same outputs.
func TestWeightsBeside(t *testing.T) {
	path, cache := weighty(t), t.TempDir()
	env := openEnv(t)
	if err := writeBeside(t, env, path, cache); err != nil {
		t.Fatal(err)
	}
	files := weightsBeside(t, cache)
	if len(files) != 1 {
		t.Fatalf("weights %q", files)
	}
	q := rows(t, 3)
	var outputs [2]collect
	for i, dir := range []string{cache, t.TempDir()} {
		m := openCut(t, env, Config{Path: path, CacheDir: dir})
		if m.loaded.cacheHit != (i == 0) {
			t.Errorf("cache hit %t", m.loaded.cacheHit)
		}
		var err error
		if outputs[i], err = runAll(m, 1, q); err != nil {
			t.Fatal(err)
		}
	}
	if err := compare(outputs[0], outputs[1]); err != nil {
		t.Error(err)
	}
	// Without its weights it is created again.
	if err := os.Truncate(files[0], 100); err != nil {
		t.Fatal(err)
	}
	if m := openCut(t, env, Config{Path: path, CacheDir: cache}); m.loaded.cacheHit {
		t.Error("a cached form without its weights was taken")
	}
	// What was left is removed by the next that writes some.
	forms, err := filepath.Glob(filepath.Join(cache, "*.onnx"))
	if err != nil || len(forms) != 1 {
		t.Fatalf("%q %v", forms, err)
	}
	if err := os.Remove(forms[0]); err != nil {
		t.Fatal(err)
	}
	if err := writeBeside(t, env, path, cache); err != nil {
		t.Fatal(err)
	}
	if left := weightsBeside(t, cache); len(left) != 1 || left[0] == files[0] {
		t.Errorf("weights %q", left)
	}
}

// Weights in the file of a model stay there if they are many, and its optimized form gives the
// same outputs.
func TestWeightsStayInTheModel(t *testing.T) {
	g := xGraph()
	values := make([]float32, 4*4096)
	for i := range values {
		values[i] = float32(math.Cos(float64(i)))
	}
	g.floats("w", []int64{4, 4096}, values...)
	g.node("MatMul", list("x", "w"), list("m"))
	g.floats("b", []int64{4096}, values[:4096]...)
	g.node("Add", list("m", "b"), list("y"))
	g.output("y", models.Float32)
	path, env, q := g.write(t), openEnv(t), rows(t, 3)
	want, err := runAll(openCut(t, env, Config{Path: path}), 1, q)
	if err != nil {
		t.Fatal(err)
	}
	cache := t.TempDir()
	o := optimizeInto(t, env, path, cache)
	if err := o.write(""); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(o.path); err != nil || info.Size() > 4096 {
		t.Errorf("the optimized form: %+v, %v", info, err)
	}
	m := openCut(t, env, Config{Path: path, CacheDir: cache})
	got, err := runAll(m, 1, q)
	if err = errors.Join(err, compare(got, want)); err != nil || !m.loaded.cacheHit {
		t.Errorf("cache hit %t, %v", m.loaded.cacheHit, err)
	}
}

// A file that is replaced while its model is optimized is not taken for what it was.
func TestWeightsThatChange(t *testing.T) {
	path, cache := weighty(t), t.TempDir()
	o := optimizeInto(t, openEnv(t), path, cache)
	name := filepath.Join(filepath.Dir(path), "weights")
	if err := os.WriteFile(name+".new", make([]byte, 3*weightyBytes), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(name+".new", name); err != nil {
		t.Fatal(err)
	}
	if err := o.write(""); err == nil || !strings.Contains(err.Error(), "file changed") {
		t.Errorf("got %v", err)
	}
	if left, _ := os.ReadDir(cache); len(left) != 0 {
		t.Errorf("%v is left", left)
	}
}

// A model that ONNX Runtime refuses leaves no weights behind.
func TestWeightsOfARefusedModel(t *testing.T) {
	g := xGraph()
	g.outside("w", "weights", 0, 4, 4)
	g.node("NoSuchOperator", list("x", "w"), list("y"))
	g.output("y", models.Float32)
	path, cache := g.write(t), t.TempDir()
	if err := os.WriteFile(filepath.Join(filepath.Dir(path), "weights"), make([]byte, 64), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := writeBeside(t, openEnv(t), path, cache); !errors.Is(judge(err), wire.ErrModel) {
		t.Errorf("got %v", err)
	}
	if left, _ := os.ReadDir(cache); len(left) != 0 {
		t.Errorf("%v is left", left)
	}
}

// TestLoadingProgresses checks that loading reports progress within a single weight.
func TestLoadingProgresses(t *testing.T) {
	g := newGraph()
	g.input("i", models.Int64, open)
	const rows, columns = 3 << 10, 16 << 10 // three parts of a file
	g.outside("table", "table", 0, rows, columns)
	g.node("Gather", list("table", "i"), list("y"))
	g.output("y", models.Float32)
	path := g.write(t)
	hollow(t, filepath.Join(filepath.Dir(path), "table"), rows*columns*4)
	told := map[string][]int64{}
	openCut(t, openEnv(t), Config{Path: path, Progress: func(phase string, done, total int64) {
		if done > total || len(told[phase]) > 0 && done < told[phase][len(told[phase])-1] {
			t.Errorf("%s: %d of %d after %d", phase, done, total, told[phase])
		}
		told[phase] = append(told[phase], done)
	}})
	if len(told["read"]) < 4 || len(told["load"]) < 5 {
		t.Errorf("got %v", told)
	}
}

// hollow makes a file of zeros that takes no room.
func hollow(t *testing.T, path string, bytes int64) {
	t.Helper()
	file, err := os.Create(path)
	if err == nil {
		err = errors.Join(file.Truncate(bytes), file.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestMoreThanTwoGigabytes serves tables that no protobuf holds, in a file that is nearly
// all holes: some together, and one alone.
func TestMoreThanTwoGigabytes(t *testing.T) {
	if testing.Short() || raceEnabled {
		t.Skip("it takes gigabytes of memory")
	}
	env := openEnv(t)
	for _, tables := range []int{9, 1} {
		t.Run(strconv.Itoa(tables), func(t *testing.T) { serveTables(t, env, tables) })
	}
}

func serveTables(t *testing.T, env *ort.Env, tables int) {
	const bytesOfAll, columns = 9 << 28, 64
	tableBytes := int64(bytesOfAll / tables)
	g := newGraph()
	g.input("i", models.Int64, open)
	sum := ""
	for n := range tables {
		number := strconv.Itoa(n)
		g.outside("table"+number, "tables", int64(n)*tableBytes, tableBytes/(4*columns), columns)
		g.node("Gather", list("table"+number, "i"), list("row"+number))
		if sum == "" {
			sum = "row0"
			continue
		}
		sum = g.node("Add", list(sum, "row"+number), list("sum"+number))
	}
	g.output(sum, models.Float32)
	path := g.write(t)
	name := filepath.Join(filepath.Dir(path), "tables")
	hollow(t, name, bytesOfAll)
	file, err := os.OpenFile(name, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	row := tableBytes/(4*columns) - 5 // of the single table beyond two gigabytes
	for n := range tables {
		if _, err := file.WriteAt(floatBytes(float32(int(1)<<n)), int64(n)*tableBytes+row*columns*4); err != nil {
			t.Fatal(err)
		}
	}
	m := openCut(t, env, Config{Path: path})
	q := query(t, models.Tensor{Type: models.Int64, Shape: []int64{2}, Data: binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, uint64(row)), 3)})
	defer thaw(q)
	got, err := runAll(m, 1, q)
	if err != nil {
		t.Fatal(err)
	}
	want := make([]float32, 2*columns)
	want[0] = float32(int(1)<<tables - 1)
	if out := got[0][0]; !bytes.Equal(out.data, floatBytes(want...)) {
		t.Errorf("got %v", out)
	}
}

// largeTable writes a model that is hashed while it loads: one operator on an empty table.
func largeTable(t *testing.T, op string) (path string) {
	const rows, columns = hashBeside / (64 << 10), 16 << 10
	g := newGraph()
	g.input("i", models.Int64, open)
	g.outside("table", "table", 0, rows, columns)
	g.node(op, list("table", "i"), list("y"))
	g.output("y", models.Float32)
	path = g.write(t)
	hollow(t, filepath.Join(filepath.Dir(path), "table"), rows*columns*4)
	return path
}

// A large model is hashed while it is loaded. A form in the cache that was made from other
// data is detected and created again.
func TestLargeModelsAreHashedWhileTheyLoad(t *testing.T) {
	path, cache, env := largeTable(t, "Gather"), t.TempDir(), openEnv(t)
	f, err := models.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	hash := f.Hash()
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	load := func() (cacheHit bool, form string) {
		t.Helper()
		m, err := OpenModel(env, Config{Path: path, CacheDir: cache})
		if err != nil {
			t.Fatal(err)
		}
		defer closeCut(t, m)
		if got := m.Model().Hash; got != hash {
			t.Errorf("hash %q, want %q", got, hash)
		}
		held, err := os.ReadDir(cache)
		if err != nil || len(held) != 1 || !strings.HasSuffix(held[0].Name(), "-"+hash+".onnx") {
			t.Fatalf("the cache holds %v, %v", held, err)
		}
		return m.loaded.cacheHit, filepath.Join(cache, held[0].Name())
	}
	if hit, _ := load(); hit {
		t.Error("an empty cache has the model")
	}
	hit, form := load()
	if !hit {
		t.Error("the cached form was not taken")
	}
	other := strings.Replace(form, hash, strings.Repeat("0", len(hash)), 1)
	if err := os.Rename(form, other); err != nil {
		t.Fatal(err)
	}
	if hit, _ := load(); hit {
		t.Error("the form of another model was taken")
	}
}

// What loading takes follows from where weights are, and whether they can stay there.
func TestLoadBytes(t *testing.T) {
	of := func(path string) int64 {
		f, err := models.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		return LoadBytes(f)
	}
	if got, want := of(weighty(t)), int64(3*weightyBytes*outsideFactor+4*insideFactor); got != want {
		t.Errorf("%d bytes for external data, want %d", got, want)
	}
	g := xGraph()
	g.floats("w", []int64{4, 4}, make([]float32, 16)...)
	g.node("MatMul", list("x", "w"), list("y"))
	g.output("y", models.Float32)
	if got := of(g.write(t)); got != 64*insideFactor {
		t.Errorf("%d bytes for 64", got)
	}
}

// A large model that cannot be loaded leaves nothing in the cache.
func TestLargeModelThatIsRefused(t *testing.T) {
	path, cache := largeTable(t, "NoSuchOperator"), t.TempDir()
	if _, err := OpenModel(openEnv(t), Config{Path: path, CacheDir: cache}); !errors.Is(err, wire.ErrModel) {
		t.Errorf("got %v", err)
	}
	if left, _ := os.ReadDir(cache); len(left) != 0 {
		t.Errorf("%v is left", left)
	}
}
