package conformance

import (
	"bufio"
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/models/zoo"
	"github.com/overlapd/overlapd/ort"
)

var (
	dataFlag = flag.String("data", os.Getenv("OVERLAPD_ONNX_TESTDATA"), "folders of models, separated by colons")
	patience = flag.Duration("patience", 5*time.Minute, "how long one model may take")
)

// roleVariable makes the test binary a child process. Its value is "child", or
// "crashes" for one that does so once ONNX Runtime has run a model.
const roleVariable = "OVERLAPD_CONFORMANCE_ROLE"

func TestMain(m *testing.M) {
	os.Setenv("GORACE", "atexit_sleep_ms=0") // else a child that the race detector watches takes a second to end
	role := os.Getenv(roleVariable)
	if role == "" {
		m.Run()
		return
	}
	if err := compareAll(os.Stdin, os.Stdout, role == "crashes"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// model is a model with the test data that lie beside it.
type model struct {
	Name   string   `json:"name"`
	Path   string   `json:"path"`
	Sets   []string `json:"sets,omitempty"`   // folders with input_N.pb and output_N.pb
	Output string   `json:"output,omitempty"` // the output for an input that rises evenly from 0 to 1
}

// The outcomes of a model.
const (
	equal   = "equal"   // cut it gives what ONNX Runtime gives
	skipped = "skipped" // ONNX Runtime itself does not run it correctly, or its inputs cannot be made
	failed  = "failed"
)

// result is what became of one model. A child prints one for each, and before it one
// without an outcome when ONNX Runtime has run the model correctly: what crashes from
// there on is our fault.
type result struct {
	Outcome   string `json:"outcome"`
	Reason    string `json:"reason,omitempty"`
	Operators int    `json:"operators,omitempty"`
	Close     bool   `json:"close,omitempty"`   // equal within the tolerance only, as are two runs of ONNX Runtime
	Checked   bool   `json:"checked,omitempty"` // ONNX Runtime was compared with outputs that came with the model
}

// summary counts what became of all models.
type summary struct {
	Models    int `json:"models"`
	Plain     int `json:"plain_correct"` // ONNX Runtime runs them correctly
	Checked   int `json:"plain_checked"` // of those, compared with outputs that came with the model
	Equal     int `json:"cut_equal"`
	Close     int `json:"cut_close"` // of those, within the tolerance only
	Operators int `json:"operators"`
}

func TestModels(t *testing.T) {
	if *dataFlag == "" {
		t.Skip("no folder of models: set OVERLAPD_ONNX_TESTDATA, or run make conformance, which takes those of Debian's libonnx-testdata")
	}
	list, err := find(filepath.SplitList(*dataFlag))
	if err != nil {
		t.Fatal(err)
	}
	s := compareEach(t, list)
	line, err := json.Marshal(s)
	t.Logf("%s, %v", line, err)
	if s.Plain == 0 {
		t.Errorf("no model below %q runs at all", *dataFlag)
	}
}

// find returns all models below the folders, sorted in each. Test data are found in
// the two layouts of the ONNX project: sets in test_data_set_N beside the model, or one
// output in NAME_output_0.pb beside NAME.onnx.
func find(folders []string) (list []model, err error) {
	for _, root := range folders {
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || filepath.Ext(path) != ".onnx" {
				return err
			}
			m := model{Path: path, Name: path}
			if name, err := filepath.Rel(filepath.Dir(filepath.Clean(root)), path); err == nil {
				m.Name = strings.TrimSuffix(strings.TrimSuffix(name, ".onnx"), "/model")
			}
			beside, err := os.ReadDir(filepath.Dir(path))
			for _, e := range beside {
				if strings.HasPrefix(e.Name(), "test_data_set_") {
					m.Sets = append(m.Sets, filepath.Join(filepath.Dir(path), e.Name()))
				}
				if e.Name() == strings.TrimSuffix(filepath.Base(path), ".onnx")+"_output_0.pb" {
					m.Output = filepath.Join(filepath.Dir(path), e.Name())
				}
			}
			list = append(list, m)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return list, nil
}

// compareEach makes a subtest of each model.
func compareEach(t *testing.T, list []model) summary {
	s := summary{Models: len(list)}
	for len(list) > 0 {
		list = list[leadChild(t, list, "child", func(m model, r result) {
			t.Run(m.Name, func(t *testing.T) {
				switch s.add(r); r.Outcome {
				case skipped:
					t.Skip(r.Reason)
				case failed:
					t.Error(r.Reason)
				}
			})
		}):]
	}
	return s
}

func (s *summary) add(r result) {
	s.Operators += r.Operators
	if r.Outcome == skipped {
		return
	}
	s.Plain++
	if r.Outcome == equal {
		s.Equal++
	}
	if r.Close {
		s.Close++
	}
	if r.Checked {
		s.Checked++
	}
}

// leadChild lets one child work on models until all are done or the child dies. It
// returns how many have a result, that of which the child died included.
func leadChild(t *testing.T, list []model, role string, report func(model, result)) (done int) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var tasks, words bytes.Buffer
	for _, m := range list {
		line, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		tasks.Write(append(line, '\n'))
	}
	child := exec.CommandContext(t.Context(), self)
	child.Env = append(os.Environ(), roleVariable+"="+role)
	child.Stdin, child.Stderr = &tasks, &words
	out, err := child.StdoutPipe()
	if err == nil {
		err = child.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	late := time.AfterFunc(*patience, func() { _ = child.Process.Kill() })
	defer late.Stop()
	plain := false
	for decoder := json.NewDecoder(out); ; late.Reset(*patience) {
		var r result
		if decoder.Decode(&r) != nil {
			break
		}
		if plain = r.Outcome == ""; !plain {
			report(list[done], r)
			done++
		}
	}
	_, _ = io.Copy(io.Discard, out) // how the child ended says more
	switch err := child.Wait(); {
	case done < len(list) && child.ProcessState.ExitCode() > 1 || child.ProcessState.ExitCode() < 0:
		died := result{Outcome: skipped, Reason: fmt.Sprintf("the process died: %v: %.1000s", err, words.String())}
		if plain {
			died.Outcome = failed
		}
		report(list[done], died)
		done++
	case err != nil || done < len(list):
		t.Fatalf("the child failed: %v: %s", err, words.String())
	}
	return done
}

// compareAll is what a child does: it compares the models named on in.
func compareAll(in io.Reader, out io.Writer, crash bool) (err error) {
	path, err := ort.Find()
	if err != nil {
		return err
	}
	lib, err := ort.Open(path)
	if err != nil {
		return err
	}
	// One thread, so that sums are formed in one order.
	env, err := lib.NewEnv(ort.EnvOptions{Name: "conformance", IntraThreads: 1})
	if err != nil {
		return err
	}
	cache, err := os.MkdirTemp("", "overlapd-conformance-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(cache)
	encoder := json.NewEncoder(out)
	c := checker{env: env, cache: cache, plain: func() {
		_ = encoder.Encode(result{}) // if nobody reads it, writing the result fails as well
		if crash {
			_ = unix.Kill(os.Getpid(), unix.SIGSEGV)
			time.Sleep(time.Minute)
		}
	}}
	for decoder := json.NewDecoder(bufio.NewReader(in)); ; {
		var m model
		if err := decoder.Decode(&m); err == io.EOF {
			return env.Close()
		} else if err != nil {
			return err
		}
		if err := encoder.Encode(c.check(m)); err != nil {
			return err
		}
	}
}

// TestZoo compares models of the zoo, some with data beside them. Data that are wrong,
// inputs that cannot be made up (tiny_bert's have a range) and a file that is no model
// are skipped.
func TestZoo(t *testing.T) {
	if _, err := ort.Find(); err != nil {
		t.Skip(err)
	}
	dir := t.TempDir()
	for _, name := range []string{"tiny_cnn", "tiny_mlp", "tiny_bert"} {
		if _, err := zoo.Build(name, dir, 1, nil); err != nil {
			t.Fatal(err)
		}
	}
	addSet(t, filepath.Join(dir, "right"), 3, "INPUT0", "INPUT1")
	addSet(t, filepath.Join(dir, "right by name"), 3, "INPUT1", "another", "INPUT0")
	addSet(t, filepath.Join(dir, "wrong"), 4, "INPUT0", "INPUT1")
	if err := os.WriteFile(filepath.Join(dir, "text.onnx"), []byte("This is no model."), 0o600); err != nil {
		t.Fatal(err)
	}
	list, err := find([]string{dir})
	if err != nil {
		t.Fatal(err)
	}
	s := compareEach(t, list)
	if s.Models != 7 || s.Plain != 4 || s.Equal != 4 || s.Checked != 2 || s.Close != 0 || s.Operators < 10 {
		t.Errorf("the sums are %+v, want 7 models, 4 plain and equal, and 2 checked", s)
	}
	at := slices.IndexFunc(list, func(m model) bool { return strings.HasSuffix(m.Name, "/right") })
	n := leadChild(t, list[at:], "crashes", func(_ model, r result) {
		if r.Outcome != failed || !strings.Contains(r.Reason, "the process died") {
			t.Errorf("of a child that crashes: %+v", r)
		}
	})
	if n != 1 {
		t.Errorf("a child that crashed has %d results", n)
	}
}

// addSet makes a model that adds and subtracts, with a set of data in which the sum of
// 2 and 1 is the given number.
func addSet(t *testing.T, dir string, sum int32, inputs ...string) {
	t.Helper()
	path, err := zoo.Build("tiny_add", dir, 1, nil)
	if err == nil {
		err = os.Rename(path, filepath.Join(dir, "model.onnx"))
	}
	set := filepath.Join(dir, "test_data_set_0")
	if err == nil {
		err = os.Mkdir(set, 0o700)
	}
	write := func(file, name string, number int32) {
		var b []byte
		for _, d := range []uint64{1, 16} {
			b = protowire.AppendVarint(protowire.AppendTag(b, 1, protowire.VarintType), d)
		}
		b = protowire.AppendVarint(protowire.AppendTag(b, 2, protowire.VarintType), uint64(models.Int32))
		b = protowire.AppendString(protowire.AppendTag(b, 8, protowire.BytesType), name)
		var numbers []byte // packed
		for range 16 {
			numbers = protowire.AppendVarint(numbers, uint64(number))
		}
		b = protowire.AppendBytes(protowire.AppendTag(b, 5, protowire.BytesType), numbers)
		if err == nil {
			err = os.WriteFile(filepath.Join(set, file), b, 0o600)
		}
	}
	values := map[string]int32{"INPUT0": 2, "INPUT1": 1}
	for i, name := range inputs {
		write(fmt.Sprintf("input_%d.pb", i), name, values[name])
	}
	write("output_0.pb", "OUTPUT0", sum)
	write("output_1.pb", "OUTPUT1", 1)
	if err != nil {
		t.Fatal(err)
	}
}
