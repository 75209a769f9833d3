package daemon

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/internal/fakes/fakeworkers"
	"github.com/overlapd/overlapd/models/zoo"
	"github.com/overlapd/overlapd/predictor"
	"github.com/overlapd/overlapd/segments/wire"
	"github.com/overlapd/overlapd/training"
)

// exported returns the artifact of a daemon that has measured two services.
func exported(t *testing.T) (path string) {
	t.Helper()
	o := rigOptions{services: 2, device: &fakeworkers.Calm, dir: t.TempDir()}
	o.fit = func(context.Context, *training.Dataset, map[string][]training.OperatorTimes) (*predictor.File, error) {
		return fakeworkers.Predictor(2), nil
	}
	r := startRig(t, o)
	r.await("serving")
	r.saveProfiles()
	r.stop()
	s := openTestState(t, o.dir)
	defer closeState(t, s)
	cut := wire.CutChoice{Hash: fakeworkers.Hash(1, fakeworkers.Operators), Target: 4}
	for _, key := range []string{"fake|" + fakeworkers.Hash(1, fakeworkers.Operators) + "|1 threads|max_batch 8|tf32 false", "other|" + fakeworkers.Hash(1, fakeworkers.Operators) + "|1 threads|max_batch 8|tf32 false"} {
		if err := s.save(cutChoices, key, cut); err != nil {
			t.Fatal(err)
		}
	}
	path = filepath.Join(t.TempDir(), "x.json")
	what, err := s.ExportPredictor(path, "")
	if err != nil {
		t.Fatal(err)
	}
	says(t, what, "a predictor of s0, s1 on "+fakeworkers.DeviceName, "trained on 1000 groups", "2 tables of isolated latencies, 1 cuts and 16 measured groups")
	return path
}

// A daemon with an imported predictor overlaps its first queries, and measures nothing.
func TestImportedPredictorServesFromTheFirstQuery(t *testing.T) {
	path, dir := exported(t), t.TempDir()
	s := openTestState(t, dir)
	var before map[string]predictor.Snapshot
	for range 2 { // the second time changes nothing
		if _, err := s.ImportPredictor(path, nil, Options{}); err != nil {
			t.Fatal(err)
		}
		solo, err := s.SoloTimes()
		if err != nil || len(solo) != 2 || before != nil && !reflect.DeepEqual(solo, before) {
			t.Fatalf("%v, %v, before %v", err, solo, before)
		}
		before = solo
		data, err := s.Datasets().Dataset(fakeworkers.DeviceName, nil)
		if err != nil || len(data.Rows) != 16 {
			t.Fatalf("%v, %d rows", err, len(data.Rows))
		}
	}
	closeState(t, s)

	r := startRig(t, rigOptions{services: 2, dir: dir, fit: func(context.Context, *training.Dataset, map[string][]training.OperatorTimes) (*predictor.File, error) {
		t.Error("a predictor is fitted")
		return nil, errNoFit
	}})
	says(t, r.await("serving").Reason, "trained on 1000 groups")
	if n := len(r.workers.Sent()); n != 0 {
		t.Errorf("%d rounds were measured", n)
	}
	var calls []*query.Call
	r.backend.Ask(func() { // so that both wait when it decides
		for i := range 2 {
			if call, err := submit(t, r.backend, i, 0); err != nil {
				t.Error(err)
			} else {
				calls = append(calls, call)
			}
		}
	})
	if _, spans := r.workers.AwaitRound(); len(spans) != 2 {
		t.Errorf("the first round is %v", spans)
	}
	r.workers.RunsOn(&fakeworkers.Calm)
	for _, call := range calls {
		isServed(t, r.backend, call)
	}
}

// What was measured where an artifact is imported stays.
func TestImportKeepsWhatIsThere(t *testing.T) {
	path, dir := exported(t), t.TempDir()
	s := openTestState(t, dir)
	defer closeState(t, s)
	a, err := artifactKind.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for key := range a.content.solo {
		if err := s.save("solo-profiles", key, testProfile(1)); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.take(a); err != nil {
		t.Fatal(err)
	}
	solo, err := s.SoloTimes()
	for key, kept := range solo {
		if !reflect.DeepEqual(kept, testProfile(1)) {
			t.Errorf("%s: %v", key, kept)
		}
	}
	if err != nil || len(solo) != len(a.content.solo) {
		t.Errorf("%v, %d tables", err, len(solo))
	}
}

func TestExportChoosesTheDevice(t *testing.T) {
	near, far := fakeworkers.Predictor(2), fakeworkers.Predictor(2)
	far.Device = "far"
	s := openTestState(t, put(t, near, far))
	defer closeState(t, s)
	path := filepath.Join(t.TempDir(), "x.json")
	if _, err := s.ExportPredictor(path, ""); err == nil || !strings.Contains(err.Error(), `such as "far" and "fake, ONNX Runtime 0": name one with --device`) {
		t.Error(err)
	}
	if _, err := s.ExportPredictor(path, "nowhere"); err == nil || !strings.Contains(err.Error(), "no predictor of nowhere") {
		t.Error(err)
	}
	if what, err := s.ExportPredictor(path, fakeworkers.DeviceName); err != nil || !strings.Contains(what, fakeworkers.DeviceName) {
		t.Error(what, err)
	}
}

// A file that was changed since it was exported is refused with what was, and nothing of it
// is stored.
func TestTamperedArtifact(t *testing.T) {
	path := exported(t)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	// edit changes a part, with its hash or without.
	edit := func(name, from, to string, hash bool) string {
		var a artifact
		if err := json.Unmarshal(text, &a); err != nil {
			t.Fatal(err)
		}
		for i := range a.Parts {
			p := &a.Parts[i]
			if p.Name != name {
				continue
			}
			if !bytes.Contains(p.Data, []byte(from)) {
				t.Fatalf("%s has no %s", name, from)
			}
			p.Data = bytes.Replace(p.Data, []byte(from), []byte(to), 1)
			if hash {
				p.SHA256 = fmt.Sprintf("%x", sha256.Sum256(p.Data))
			}
		}
		changed, err := json.Marshal(a)
		if err != nil {
			t.Fatal(err)
		}
		return string(changed)
	}
	file := string(text)
	for name, c := range map[string]struct{ text, says string }{
		"a byte of a part":    {edit("predictor", `"rows":1000`, `"rows":9000`, false), "part predictor has the hash"},
		"solo times":          {edit("solo-times", `"operators":4`, `"operators":5`, false), "part solo-times has the hash"},
		"an impossible part":  {edit("predictor", `"rows":1000`, `"rows":-1`, true), "trained on -1 rows"},
		"a part without form": {edit("groups", `{`, `[`, true), "part groups: "},
		"another device":      {strings.Replace(file, `"device":"fake`, `"device":"fast`, 1), `the header has "fast, ONNX Runtime 0"`},
		"solo times of others": {edit("solo-times", `"fake|`, `"fast|`, true),
			`isolated latencies of "fast|`},
		"a cut of others":       {edit("cuts", `"fake|`, `"fast|`, true), `the cut of "fast|`},
		"operators of others":   {edit("operators", `"s0"`, `"s7"`, true), `operator times of "s7"`},
		"a part is missing":     {strings.Replace(file, `"name":"cuts"`, `"name":"cats"`, 1), "part cuts is missing"},
		"a part is there twice": {strings.Replace(file, `"name":"cuts"`, `"name":"groups"`, 1), "part \"groups\" is unknown or duplicate"},
		"truncated":             {file[:len(file)/2], "truncated"},
		"another kind":          {predictorText(t, nil), `its format is "overlapd-predictor/1"`},
		"another version":       {strings.Replace(file, "artifact/1", "artifact/2", 1), `its format is "overlapd-artifact/2"`},
		"an unknown field":      {strings.Replace(file, `"parts"`, `"more":1,"parts"`, 1), `unknown field "more"`},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "y.json")
			writeFile(t, path, c.text)
			s := openTestState(t, t.TempDir())
			defer closeState(t, s)
			_, err := s.ImportPredictor(path, nil, Options{})
			if err == nil || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), path) {
				t.Errorf("got %v, want %q", err, c.says)
			}
			if files, err := s.Datasets().Predictors(); err != nil || len(files) > 0 {
				t.Errorf("%v, %d predictors are stored", err, len(files))
			}
		})
	}
}

// zooArtifact writes an artifact of two models of the zoo, as a daemon with two threads
// An artifact that is full of nothing is refused before it takes memory or time: its list of
// parts, and what a part holds.
func TestArtifactOfNothing(t *testing.T) {
	const size = 16 << 20
	file := func(parts string) string {
		return `{"format":"overlapd-artifact/1","device":"","created":"2026-01-01T00:00:00Z","models":[],"parts":[` + parts + `]}`
	}
	many := func(n int) string { return strings.Repeat("{},", n) + "{}" }
	rows := []byte(`{"Rows":[` + many(size/4) + `]}`)
	part := fmt.Sprintf(`{"name":"groups","sha256":"%x","data":"%s"}`, sha256.Sum256(rows), base64.StdEncoding.EncodeToString(rows))
	for name, c := range map[string]struct{ text, says string }{
		"parts":                {file(many(size / 3)), "more than"},
		"half a million parts": {file(many(500_000)), "it has 500001 parts"},
		"rows of a part":       {file(part), "part groups: it has more than"},
	} {
		path := filepath.Join(t.TempDir(), "y.json")
		writeFile(t, path, c.text)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := artifactKind.ReadFile(path)
		runtime.ReadMemStats(&after)
		if err == nil || !strings.Contains(err.Error(), c.says) || len(err.Error()) > 4<<10 {
			t.Errorf("%s: %.200v, want %q", name, err, c.says)
		}
		if took := after.TotalAlloc - before.TotalAlloc; took > 512<<20 {
			t.Errorf("%s: %d MiB are allocated for %d", name, took>>20, len(c.text)>>20)
		}
	}
}

// exports it.
func zooArtifact(t *testing.T, path string, change func(*predictor.File)) {
	t.Helper()
	f := fakeworkers.Predictor(2)
	f.Device = "fake, ONNX Runtime 1"
	for i, name := range []string{"tiny_add", "tiny_mlp"} {
		model, err := zoo.Build(name, t.TempDir(), zooSeed, nil)
		if err != nil {
			t.Fatal(err)
		}
		hash, err := hashModel(t.Context(), model, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		m := &f.Features.Models[i]
		m.Name, m.Hash = name, hash+"/2 threads, or one beside others on 4 cores"
	}
	if change != nil {
		change(f)
	}
	s := openTestState(t, put(t, f))
	defer closeState(t, s)
	if _, err := s.ExportPredictor(path, ""); err != nil {
		t.Fatal(err)
	}
}

// zooConfig is a configuration whose daemon the artifact fits.
func zooConfig(t *testing.T) (config.Config, Options) {
	c := fakeworkers.Config(2, nil)
	c.Policy, c.StateDir, c.Worker.Threads, c.Device = "overlap", t.TempDir(), 2, config.DeviceCPU
	c.Services[0].Name, c.Services[1].Name, c.Services[1].Model = "tiny_add", "tiny_mlp", "zoo:tiny_mlp"
	return c, Options{Device: "fake", Nodes: [][]int{{0, 1, 2, 3}}, Log: zerolog.Nop()}
}

func TestForeignArtifactIsRefusedWithWhatDiffers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.json")
	zooArtifact(t, path, nil)
	for name, c := range map[string]struct {
		change func(*config.Config, *Options)
		says   string // "" if it fits
		is     error
	}{
		"fits":         {func(*config.Config, *Options) {}, "", nil},
		"another name": {func(c *config.Config, _ *Options) { c.Services[0].Name = "x" }, "", nil},
		"device":       {func(_ *config.Config, o *Options) { o.Device = "slow" }, `measured on "fake, ONNX Runtime 1", and this device is "slow"`, predictor.ErrDevice},
		"threads": {func(c *config.Config, _ *Options) { c.Worker.Threads = 3 },
			"service tiny_mlp: predictor of other models: its model was measured with 2 threads, but has 3 threads here", predictor.ErrModels},
		"model": {func(c *config.Config, _ *Options) { c.Services[1].Model = "zoo:tiny_cnn" },
			"service tiny_mlp: predictor of other models: its model was measured with model file", predictor.ErrModels},
		"too few": {func(c *config.Config, _ *Options) { c.Services[1].Name, c.Services[1].Model = "y", "zoo:tiny_cnn" },
			"it covers tiny_add, tiny_mlp, which are only 1 of the services here", predictor.ErrModels},
	} {
		t.Run(name, func(t *testing.T) {
			conf, o := zooConfig(t)
			c.change(&conf, &o)
			s := openTestState(t, t.TempDir())
			defer closeState(t, s)
			_, err := s.ImportPredictor(path, &conf, o)
			if c.says == "" && err != nil || c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says) || !errors.Is(err, c.is)) {
				t.Errorf("got %v, want %q", err, c.says)
			}
			files, perr := s.Datasets().Predictors()
			if perr != nil || (err == nil) != (len(files) == 1) {
				t.Errorf("%v, %d predictors", perr, len(files))
			}
		})
	}
}

// Of the artifacts in a folder the newest is taken that fits; a URL names one; and whatever
// is wrong with a source, the daemon starts without it.
func TestSourceOfPredictors(t *testing.T) {
	dir := t.TempDir()
	later := func(f *predictor.File) { f.Created, f.Rows = f.Created.AddDate(1, 0, 0), 2000 }
	zooArtifact(t, filepath.Join(dir, "a.json"), nil)
	zooArtifact(t, filepath.Join(dir, "b.json"), later)
	zooArtifact(t, filepath.Join(dir, "c.json"), func(f *predictor.File) { later(f); f.Device, f.Rows = "slow", 3000 })
	writeFile(t, filepath.Join(dir, "d.json"), "{}")
	server := httptest.NewServer(http.FileServer(http.Dir(dir)))
	defer server.Close()
	for name, c := range map[string]struct {
		source string
		rows   int // of the predictor that is taken, 0 for none
		says   []string
	}{
		"folder":        {dir, 2000, []string{"predictor taken from the source", "c.json", "d.json", `this device is \"fake\"`}},
		"file":          {filepath.Join(dir, "a.json"), 1000, []string{"predictor taken from the source"}},
		"foreign":       {filepath.Join(dir, "c.json"), 0, []string{`this device is \"fake\"`, "groups are measured"}},
		"no folder":     {filepath.Join(dir, "x"), 0, []string{"no such file", "groups are measured"}},
		"empty folder":  {t.TempDir(), 0, []string{"groups are measured"}},
		"URL":           {server.URL + "/b.json", 2000, []string{"predictor taken from the source"}},
		"URL, foreign":  {server.URL + "/c.json", 0, []string{`this device is \"fake\"`}},
		"URL, nothing":  {server.URL + "/x.json", 0, []string{"HTTP status 404"}},
		"URL, password": {strings.Replace(server.URL, "://", "://me:secret@", 1) + "/x.json", 0, []string{"HTTP status 404", "me:xxxxx@"}},
		"nobody":        {"http://127.0.0.1:1/x.json", 0, []string{"connection refused"}},
	} {
		t.Run(name, func(t *testing.T) {
			conf, o := zooConfig(t)
			conf.Predictor.Source = c.source
			log := fakeworkers.NewLog()
			p := &profiles{state: openTestState(t, t.TempDir()), log: zerolog.New(log)}
			defer closeState(t, p.state)
			devices := pooled(poolDevice{config: conf, log: zerolog.Nop(), text: o.Device, cores: o.cores(), life: t.Context()}, nil)
			p.state.takeSource(t.Context(), c.source, devices, p.log)
			got := p.learning(&conf, nil)
			says(t, log.String(), c.says...)
			if strings.Contains(log.String(), "secret") {
				t.Error("the log has the password")
			}
			rows := 0
			for _, f := range got.Stored {
				rows += f.Rows
			}
			if rows != c.rows {
				t.Errorf("%d predictors of %d rows, want one of %d", len(got.Stored), rows, c.rows)
			}
		})
	}
}
