package models

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/encoding/protowire"
)

// testExternal returns a tensor of two float32 whose data lie outside the
// file; entries are keys and values in turn.
func testExternal(name string, entries ...string) pb {
	t := testTensor(name, Float32, 2).int(14, 1)
	for i := 0; i < len(entries); i += 2 {
		t = t.sub(13, pb(nil).str(1, entries[i]).str(2, entries[i+1]))
	}
	return t
}

func write(t testing.TB, path string, data []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o666); err != nil {
		t.Fatal(err)
	}
}

// externalModel writes a model with the given initializer, and some data, to
// a folder. It returns the path of the model.
func externalModel(t testing.TB, model pb) string {
	t.Helper()
	root := t.TempDir()
	write(t, filepath.Join(root, "secret"), make([]byte, 64))
	dir := filepath.Join(root, "model")
	write(t, filepath.Join(dir, "data"), []byte("0123456789abcdef"))
	write(t, filepath.Join(dir, "sub", "data"), []byte("ABCDEFGH"))
	path := filepath.Join(dir, "m.onnx")
	write(t, path, model)
	return path
}

func mustOpen(t testing.TB, path string) *File {
	t.Helper()
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

func withInitializers(initializers ...pb) pb {
	g := testGraph("x", "x")
	for _, i := range initializers {
		g = g.sub(5, i)
	}
	return testModel(g)
}

func TestExternalData(t *testing.T) {
	f := mustOpen(t, externalModel(t, withInitializers(
		testExternal("a", "location", "data", "offset", "4", "length", "8", "checksum", "0", "basepath", "/"),
		testExternal("b", "location", "data"),
		testExternal("c", "location", "sub/data"))))
	for i, want := range []string{"456789ab", "01234567", "ABCDEFGH"} {
		init := f.Graph.Initializers[i]
		if got := f.externalBytes(init.External); string(got) != want || init.Bytes != 8 {
			t.Errorf("%s: %q of %d bytes", init.Name, got, init.Bytes)
		}
		inlined := mustParse(t, testModel(pb(nil).sub(5, f.Inline(init)))).Graph.Initializers[0]
		if inlined.External != nil || inlined.Name != init.Name || !bytes.HasSuffix(inlined.Raw, []byte(want)) {
			t.Errorf("%s inlined: %+v", init.Name, inlined)
		}
	}
}

func TestExternalAttacks(t *testing.T) {
	for _, test := range []struct {
		name    string
		entries []string
		prepare func(dir string) error
	}{
		{"traversal", []string{"location", "../secret"}, nil},
		{"traversal inside", []string{"location", "sub/../../secret"}, nil},
		{"traversal that stays inside", []string{"location", "sub/../data"}, nil},
		{"absolute", []string{"location", "/etc/passwd"}, nil},
		{"device", []string{"location", "/dev/zero"}, nil},
		{"empty", []string{"location", ""}, nil},
		{"none", []string{"offset", "0"}, nil},
		{"the folder itself", []string{"location", "."}, nil},
		{"a folder", []string{"location", "sub"}, nil},
		{"NUL", []string{"location", "data\x00"}, nil},
		{"backslash", []string{"location", `..\secret`}, nil},
		{"address in memory", []string{"location", "*/_ORT_MEM_ADDR_/*", "offset", "1"}, nil},
		{"missing", []string{"location", "nothing"}, nil},
		{"symlink", []string{"location", "link"},
			func(dir string) error { return os.Symlink("../secret", filepath.Join(dir, "link")) }},
		{"symlink inside", []string{"location", "link"},
			func(dir string) error { return os.Symlink("data", filepath.Join(dir, "link")) }},
		{"parent symlink", []string{"location", "up/secret"},
			func(dir string) error { return os.Symlink("..", filepath.Join(dir, "up")) }},
		{"hard link", []string{"location", "link"},
			func(dir string) error { return os.Link(filepath.Join(dir, "../secret"), filepath.Join(dir, "link")) }},
		{"FIFO", []string{"location", "fifo"},
			func(dir string) error { return unix.Mkfifo(filepath.Join(dir, "fifo"), 0o666) }},
		{"socket", []string{"location", "socket"}, func(dir string) error {
			return unix.Mknod(filepath.Join(dir, "socket"), unix.S_IFSOCK|0o666, 0)
		}},
		{"huge length", []string{"location", "data", "length", "1125899906842624"}, nil},
		{"length of another size", []string{"location", "data", "length", "4"}, nil},
		{"negative length", []string{"location", "data", "length", "-8"}, nil},
		{"negative offset", []string{"location", "data", "offset", "-1"}, nil},
		{"offset beyond end", []string{"location", "data", "offset", "9"}, nil},
		{"offset that wraps", []string{"location", "data", "offset", "9223372036854775807"}, nil},
		{"offset beyond 63 bits", []string{"location", "data", "offset", "18446744073709551615"}, nil},
		{"offset is no number", []string{"location", "data", "offset", "0x4"}, nil},
		{"unknown key", []string{"location", "data", "__class__", "x"}, nil},
		{"key twice", []string{"location", "data", "location", "data"}, nil},
		{"name of another reader", []string{"location", "data", "prepacked_0", "x"}, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			path := externalModel(t, withInitializers(testExternal("w", test.entries...)))
			if test.prepare != nil {
				if err := test.prepare(filepath.Dir(path)); err != nil {
					t.Fatal(err)
				}
			}
			_, err := Open(path)
			wantRefused(t, err, ErrExternal, path, `initializer "w"`)
		})
	}
}

// External data are refused wherever a tensor may stand, except in dense
// initializers of the main graph.
func TestExternalDataElsewhere(t *testing.T) {
	ext := testExternal("w", "location", "data")
	sparseValues := pb(nil).sub(1, ext).sub(2, testTensor("", Int64, 2).sub(9, raw64(0, 1))).int(3, 4)
	indices := testTensor("", Int64, 1).int(14, 1).sub(13, pb(nil).str(1, "location").str(2, "data"))
	sparseIndices := pb(nil).sub(1, testTensor("w", Float32, 1).sub(9, make(pb, 4))).sub(2, indices).int(3, 4)
	constant := func(field protowire.Number, value pb) pb {
		return testNode("Constant", "", "c", pb(nil).str(1, "value").sub(field, value))
	}
	inSubgraph := func(g pb) pb { return testNode("If", "x", "y", graphAttribute("then_branch", g)) }
	for name, model := range map[string]pb{
		"values of a sparse initializer":  testModel(pb(nil).sub(15, sparseValues)),
		"indices of a sparse initializer": testModel(pb(nil).sub(15, sparseIndices)),
		"Constant.value":                  testModel(testGraph("", "", constant(5, ext))),
		"Constant.sparse_value":           testModel(testGraph("", "", constant(22, sparseValues))),
		"indices of Constant":             testModel(testGraph("", "", constant(22, sparseIndices))),
		"list of tensors":                 testModel(testGraph("", "", constant(10, ext))),
		"list of sparse tensors":          testModel(testGraph("", "", constant(23, sparseValues))),
		"subgraph":                        testModel(testGraph("x", "y", inSubgraph(testGraph("", "").sub(5, ext)))),
		"sparse in a subgraph":            testModel(testGraph("x", "y", inSubgraph(testGraph("", "").sub(15, sparseValues)))),
		"list of subgraphs": testModel(testGraph("x", "y", testNode("If", "x", "y",
			pb(nil).str(1, "g").sub(11, testGraph("", "").sub(5, ext))))),
		"Constant in a subgraph": testModel(testGraph("x", "y", inSubgraph(testGraph("", "", constant(5, ext))))),
		"function":               testModel(nil).sub(25, testFunction("f", constant(5, ext), testNode("Relu", "x", "y"))),
		"default of a function": testModel(nil).sub(25, testFunction("f", testNode("Relu", "x", "y")).
			sub(11, pb(nil).str(1, "value").sub(5, ext))),
		"subgraph of a function": testModel(nil).sub(25, testFunction("f", inSubgraph(testGraph("", "").sub(5, ext)))),
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Open(externalModel(t, model))
			wantRefused(t, err, ErrExternal, "main graph")
		})
	}
}

func TestExternalDataMixed(t *testing.T) {
	for name, tensor := range map[string]pb{
		"data in the file too":       testExternal("w", "location", "data").sub(9, make(pb, 8)),
		"reference but not external": testExternal("w", "location", "data").int(14, 0),
		"strings":                    pb(nil).str(8, "w").int(2, 8).int(14, 1).sub(13, pb(nil).str(1, "location").str(2, "data")),
		"unknown place":              testExternal("w", "location", "data").int(14, 2),
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Open(externalModel(t, withInitializers(tensor)))
			wantRefused(t, err, ErrExternal, `"w"`)
		})
	}
}

func TestParseRefusesExternalData(t *testing.T) {
	wantParseRefused(t, withInitializers(testExternal("w", "location", "data")), ErrExternal, "folder", "one file")
}

func TestExternalLimits(t *testing.T) {
	path := externalModel(t, withInitializers(
		testExternal("a", "location", "data"), testExternal("b", "location", "sub///data")))
	for name, set := range map[string]func(*limits){
		" files": func(l *limits) { l.ExternalFiles = 1 },
		" bytes": func(l *limits) { l.ExternalBytes = 15 },
		"a name": func(l *limits) { l.NameBytes = len("location") },
	} {
		l := defaultLimits()
		set(&l)
		_, err := openWithin(path, l, nil)
		wantRefused(t, err, ErrLimit, name)
	}
}

func TestOpenRegularFilesOnly(t *testing.T) {
	model := testModel(testGraph("x", "x"))
	path := externalModel(t, model)
	dir := filepath.Dir(path)
	fifo, empty, link := filepath.Join(dir, "fifo"), filepath.Join(dir, "empty"), filepath.Join(dir, "link")
	write(t, empty, nil)
	if err := errors.Join(unix.Mkfifo(fifo, 0o666), os.Symlink("m.onnx", link)); err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{fifo, dir, empty, "/dev/zero"} {
		_, err := Open(p)
		wantRefused(t, err, ErrNotONNX, p)
	}
	if _, err := Open(filepath.Join(dir, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
	l := defaultLimits()
	l.FileBytes = int64(len(model)) - 1
	_, err := openWithin(path, l, nil)
	wantRefused(t, err, ErrLimit)

	f := mustOpen(t, link)
	if f.Path != link {
		t.Errorf("path %s", f.Path)
	}
}

func TestHash(t *testing.T) {
	model := testModel(testGraph("x", "x"))
	f := mustOpen(t, externalModel(t, model))
	sum := sha256.Sum256(model)
	if got := f.Hash(); got != hex.EncodeToString(sum[:]) {
		t.Errorf("hash %s, want that of the file", got)
	}

	path := externalModel(t, withInitializers(testExternal("w", "location", "data")))
	hashes := map[string]bool{}
	for i := range 2 {
		write(t, filepath.Join(filepath.Dir(path), "data"), fmt.Appendf(nil, "weights%d", i))
		got := mustOpen(t, path).Hash()
		if len(got) != 64 || strings.ToLower(got) != got {
			t.Errorf("hash %q", got)
		}
		hashes[got] = true
	}
	if len(hashes) != 2 {
		t.Error("the hash does not change with the external data")
	}
}

func TestClose(t *testing.T) {
	f, err := Open(externalModel(t, withInitializers(testExternal("w", "location", "data"))))
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// What Open refuses it gives back: descriptors and mappings.
func TestOpenLeaksNothing(t *testing.T) {
	path := externalModel(t, withInitializers(
		testExternal("a", "location", "data"), testExternal("b", "location", "link")))
	if err := os.Symlink("data", filepath.Join(filepath.Dir(path), "link")); err != nil {
		t.Fatal(err)
	}
	count := func() (int, int) {
		fds, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Skip(err)
		}
		maps, _ := os.ReadFile("/proc/self/maps")
		return len(fds), strings.Count(string(maps), filepath.Dir(path))
	}
	fds, _ := count()
	for range 20 {
		_, err := Open(path)
		wantRefused(t, err, ErrExternal)
	}
	if after, mappings := count(); after > fds || mappings > 0 {
		t.Errorf("%d descriptors before, %d after; %d mappings", fds, after, mappings)
	}
}
