package segments

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/segments/wire"
	"github.com/overlapd/overlapd/segments/worker"
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

// A model whose weights are too many for one protobuf keeps them in a file beside its
// optimized form, and gives the same outputs.
func TestWeightsBeside(t *testing.T) {
	defer func(before int64) { largeBytes = before }(largeBytes)
	path, cache := weighty(t), t.TempDir()
	env := openEnv(t)
	openCut(t, env, Config{Path: path, CacheDir: cache})
	if files := weightsBeside(t, cache); len(files) != 0 {
		t.Errorf("weights that fit lie beside: %q", files)
	}
	largeBytes = 100
	cache = t.TempDir()
	for _, hit := range []bool{false, true} {
		m := openCut(t, env, Config{Path: path, CacheDir: cache})
		if files := weightsBeside(t, cache); len(files) != 1 || m.cacheHit != hit {
			t.Errorf("cache hit %t, weights %q", m.cacheHit, files)
		}
	}
	// Without its weights it is made anew, and what was left is removed.
	old := weightsBeside(t, cache)[0]
	if err := os.Truncate(old, 100); err != nil {
		t.Fatal(err)
	}
	m := openCut(t, env, Config{Path: path, CacheDir: cache})
	if files := weightsBeside(t, cache); len(files) != 1 || files[0] == old || m.cacheHit {
		t.Errorf("cache hit %t, weights %q", m.cacheHit, files)
	}
}

func TestWeightsBesideAreTheSame(t *testing.T) {
	defer func(before int64) { largeBytes = before }(largeBytes)
	largeBytes = 0
	expectWhole(t, weighty(t), rows(t, 1), rows(t, 3))
}

// Weights in the file of a model lie beside its optimized form as well.
func TestWeightsInsideComeOut(t *testing.T) {
	defer func(before int64) { largeBytes = before }(largeBytes)
	largeBytes = 0
	g := xGraph()
	values := make([]float32, 4*512)
	for i := range values {
		values[i] = float32(math.Cos(float64(i)))
	}
	g.floats("w", []int64{4, 512}, values...)
	g.node("MatMul", list("x", "w"), list("y"))
	g.output("y", models.Float32)
	path, cache := g.write(t), t.TempDir()
	openCut(t, openEnv(t), Config{Path: path, CacheDir: cache})
	if files := weightsBeside(t, cache); len(files) != 1 {
		t.Errorf("weights %q", files)
	}
}

// A large model that ONNX Runtime refuses leaves no weights behind.
func TestWeightsOfARefusedModel(t *testing.T) {
	defer func(before int64) { largeBytes = before }(largeBytes)
	largeBytes = 0
	g := xGraph()
	g.outside("w", "weights", 0, 4, 4)
	g.node("NoSuchOperator", list("x", "w"), list("y"))
	g.output("y", models.Float32)
	path, cache := g.write(t), t.TempDir()
	if err := os.WriteFile(filepath.Join(filepath.Dir(path), "weights"), make([]byte, 64), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenModel(openEnv(t), Config{Path: path, CacheDir: cache}); !errors.Is(err, wire.ErrModel) {
		t.Errorf("got %v", err)
	}
	if left, _ := os.ReadDir(cache); len(left) != 0 {
		t.Errorf("%v is left", left)
	}
}

// TestMoreThanTwoGigabytes serves tables that no protobuf holds, in a file that is nearly
// all holes.
func TestMoreThanTwoGigabytes(t *testing.T) {
	if testing.Short() || raceEnabled {
		t.Skip("it takes gigabytes of memory and of disk")
	}
	const tables, rows, columns = 9, 1 << 20, 64
	const tableBytes = rows * columns * 4 // 256 MiB
	var disk unix.Statfs_t
	if err := unix.Statfs(t.TempDir(), &disk); err != nil || disk.Bavail*uint64(disk.Bsize) < 2*tables*tableBytes {
		t.Skipf("there is no room for the optimized model: %d blocks are free, %v", disk.Bavail, err)
	}
	g := newGraph()
	g.input("i", models.Int64, open)
	sum := ""
	for n := range tables {
		number := strconv.Itoa(n)
		g.outside("table"+number, "tables", int64(n)*tableBytes, rows, columns)
		g.node("Gather", list("table"+number, "i"), list("row"+number))
		if sum == "" {
			sum = "row0"
			continue
		}
		sum = g.node("Add", list(sum, "row"+number), list("sum"+number))
	}
	g.output(sum, models.Float32)
	path := g.write(t)
	file, err := os.Create(filepath.Join(filepath.Dir(path), "tables"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	const row = 777_777
	for n := range tables {
		if _, err := file.WriteAt(floatBytes(float32(int(1)<<n)), int64(n)*tableBytes+row*columns*4); err != nil {
			t.Fatal(err)
		}
	}
	if err := file.Truncate(tables * tableBytes); err != nil {
		t.Fatal(err)
	}
	m := openCut(t, openEnv(t), Config{Path: path})
	q := query(t, worker.Tensor{Type: models.Int64, Shape: []int64{2}, Data: binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, row), 3)})
	defer thaw(q)
	got, err := runAll(m, 1, q)
	if err != nil {
		t.Fatal(err)
	}
	want := make([]float32, 2*columns)
	want[0] = 1<<tables - 1
	if out := got[0][0]; !bytes.Equal(out.data, floatBytes(want...)) {
		t.Errorf("got %v", out)
	}
}
