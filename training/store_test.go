package training

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.etcd.io/bbolt"

	"github.com/overlapd/overlapd/predictor"
)

// openStore opens a store in a file of this folder. When the test ends, the
// file is closed and must be one that the daemon takes.
func openStore(t *testing.T, dir string) (*Store, *bbolt.DB) {
	t.Helper()
	db, err := bbolt.Open(filepath.Join(dir, "state.db"), 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if db.Path() == "" {
			return // closed before
		}
		checkFile(t, db)
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	s, err := NewStore(db)
	if err != nil {
		t.Fatal(err)
	}
	return s, db
}

// checkFile holds the file to what the daemon asks of it: values are JSON, and
// no bucket lies in another.
func checkFile(t *testing.T, db *bbolt.DB) {
	t.Helper()
	err := db.View(func(tx *bbolt.Tx) error {
		return tx.ForEach(func(name []byte, b *bbolt.Bucket) error {
			return b.ForEach(func(k, text []byte) error {
				if !json.Valid(text) {
					return fmt.Errorf("%s of %s is not JSON: %q", k, name, text)
				}
				return nil
			})
		})
	})
	if err != nil {
		t.Error(err)
	}
}

func mustAppend(t *testing.T, s *Store, d *Dataset) {
	t.Helper()
	if err := s.Append(d); err != nil {
		t.Fatal(err)
	}
}

// measured returns a dataset of two models, alone and as a pair.
func measured(device string) *Dataset {
	return &Dataset{
		Device: device,
		Models: []Model{{Name: "a", Hash: "1", Operators: 9}, {Name: "b", Operators: 5}},
		Rows: []Row{
			{Group: group(span(0, 0, 9, 1, 16), span(1, 2, 5, 4, 0)), Repeats: 3, Median: 10, Mean: 10, Std: 1},
			{Group: group(span(0, 0, 9, 2, 16)), Repeats: 5, Median: 20.5, Mean: 40, Std: 2},
			{Group: group(span(0, 3, 4, 4, 8), span(1, 0, 5, 1, 0)), Median: 30, Mean: 30, Std: 6},
			{Group: group(span(1, 0, 5, 1, 0)), Median: 40, Mean: 40, Std: 0},
		},
	}
}

func TestStore(t *testing.T) {
	dir := t.TempDir()
	want := measured("d")
	s, db := openStore(t, dir)
	if d, err := s.Dataset("d", nil); err != nil || len(d.Rows) != 0 || d.Device != "d" {
		t.Errorf("an empty store has %+v, %v", d, err)
	}
	mustAppend(t, s, want)
	mustAppend(t, s, measured("another"))
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}

	s, _ = openStore(t, dir)
	got, err := s.Dataset("d", nil)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(rowSet(want), rowSet(got)); d != "" || got.Device != "d" {
		t.Errorf("device %q:\n%s", got.Device, d)
	}
	if d := cmp.Diff(want.Models, got.Models); d != "" {
		t.Error(d)
	}
	got, err = s.Dataset("d", want.Models[1:])
	if err != nil || len(got.Rows) != 1 || len(got.Models) != 1 || got.Rows[0].Median != 40 {
		t.Errorf("of one model: %+v, %v", got, err)
	}
	other := []Model{{Name: "a", Hash: "2", Operators: 9}, {Name: "b", Operators: 5}}
	if got, err = s.Dataset("d", other); err != nil || len(got.Rows) != 1 {
		t.Errorf("a model of another hash: %+v, %v", got, err)
	}
}

// rowSet returns rows in a form that does not depend on their order.
func rowSet(d *Dataset) map[string]Row {
	set := map[string]Row{}
	for _, r := range d.Rows {
		set[setOf(r.Group)+fmt.Sprint(r.Median)] = r
	}
	return set
}

// While measuring, a few rows are added after every group. What that costs
// must not grow with what is there.
func TestAppendRewritesNothing(t *testing.T) {
	s, db := openStore(t, t.TempDir())
	many := measured("d")
	for len(many.Rows) < 20_000 {
		many.Rows = append(many.Rows, many.Rows[:4]...)
	}
	mustAppend(t, s, many)
	stats := db.Stats().TxStats
	before := stats.GetPageAlloc()
	mustAppend(t, s, measured("d"))
	stats = db.Stats().TxStats
	if written := stats.GetPageAlloc() - before; written > 1<<18 {
		t.Errorf("four rows made %d bytes of pages", written)
	}
}

func TestList(t *testing.T) {
	s, _ := openStore(t, t.TempDir())
	mustAppend(t, s, measured("z"))
	mustAppend(t, s, measured("d"))
	list, err := s.List()
	if err != nil || len(list) != 6 {
		t.Fatalf("%d sets, %v", len(list), err)
	}
	m := measured("d").Models
	want := []Summary{
		{Device: "d", Models: m[:1], Rows: 1, Sizes: []int{2}, SeqLens: []int{16}, Median: 20.5, Spread: 0.05},
		{Device: "d", Models: m[1:], Rows: 1, Sizes: []int{1}, SeqLens: []int{}, Median: 40, Spread: 0},
		{Device: "d", Models: m, Rows: 2, Sizes: []int{1, 4}, SeqLens: []int{8, 16}, Median: 20, Spread: 0.15000000000000002},
	}
	for i := range want {
		want[i].ID = list[i].ID
	}
	if d := cmp.Diff(want, list[:3]); d != "" {
		t.Error(d)
	}
	if list[2].Name() != "a + b" {
		t.Errorf("name %q", list[2].Name())
	}
	d, err := s.Set(list[2].ID)
	if err != nil || len(d.Rows) != 2 || d.Device != "d" {
		t.Errorf("set: %+v, %v", d, err)
	}
	if _, err := s.Set("none"); !errors.Is(err, errNoSet) {
		t.Errorf("no set: %v", err)
	}
}

func TestDelete(t *testing.T) {
	s, _ := openStore(t, t.TempDir())
	mustAppend(t, s, measured("d"))
	list, err := s.List()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Delete(list[2].ID); err != nil {
		t.Fatal(err)
	}
	if d, err := s.Dataset("d", nil); err != nil || len(d.Rows) != 2 {
		t.Errorf("%d rows are left, %v", len(d.Rows), err)
	}
	if err := s.Delete(list[2].ID); !errors.Is(err, errNoSet) {
		t.Errorf("deleted twice: %v", err)
	}
	mustAppend(t, s, measured("d"))
	if d, err := s.Set(list[2].ID); err != nil || len(d.Rows) != 2 {
		t.Errorf("after it was stored anew: %+v, %v", d, err)
	}
}

func TestOperatorTimes(t *testing.T) {
	s, _ := openStore(t, t.TempDir())
	a, b := Model{Name: "a", Operators: 2}, Model{Name: "b", Operators: 1}
	put := func(m Model, o OperatorTimes) {
		t.Helper()
		if err := s.PutOperators("d", m, o); err != nil {
			t.Fatal(err)
		}
	}
	put(a, OperatorTimes{Size: 16, Repeats: 3, Micros: []float64{1, 2}})
	put(a, OperatorTimes{Size: 4, Repeats: 3, Micros: []float64{3, 4}})
	put(a, OperatorTimes{Size: 4, SeqLen: 8, Repeats: 3, Micros: []float64{5, 6}})
	put(a, OperatorTimes{Size: 4, Repeats: 9, Micros: []float64{7, 8}})
	put(b, OperatorTimes{Size: 1, Repeats: 1, Micros: []float64{9}})
	want := map[string][]OperatorTimes{"a": {
		{Size: 4, Repeats: 9, Micros: []float64{7, 8}},
		{Size: 4, SeqLen: 8, Repeats: 3, Micros: []float64{5, 6}},
		{Size: 16, Repeats: 3, Micros: []float64{1, 2}},
	}}
	got, err := s.Operators("d", []Model{a, {Name: "b", Operators: 2}})
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if got, err := s.Operators("e", []Model{a}); err != nil || len(got) != 0 {
		t.Errorf("on another device: %v, %v", got, err)
	}
	for _, o := range []OperatorTimes{{Size: 1, Micros: []float64{1}}, {Size: 0, Micros: []float64{1, 2}}, {Size: 1, Micros: []float64{1, -2}}} {
		if err := s.PutOperators("d", a, o); !errors.Is(err, ErrFormat) {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

func TestPredictors(t *testing.T) {
	s, _ := openStore(t, t.TempDir())
	start := time.Date(2026, 1, 31, 23, 59, 0, 0, time.FixedZone("", 3600))
	for i := range maxPredictors + 5 {
		f := &predictor.File{Format: predictor.Format, Created: start.Add(time.Duration(i) * time.Second), Rows: i, Layers: []predictor.Layer{{Weights: []float32{0.1}}}}
		if err := s.PutPredictor(f); err != nil {
			t.Fatal(err)
		}
	}
	files, err := s.Predictors()
	if err != nil || len(files) != maxPredictors {
		t.Fatalf("%d predictors, %v", len(files), err)
	}
	for i, f := range files {
		if f.Rows != maxPredictors+4-i || f.Layers[0].Weights[0] != 0.1 {
			t.Errorf("%d: %+v", i, f)
		}
	}
	big := &predictor.File{Layers: []predictor.Layer{{Weights: make([]float32, maxPredictorBytes)}}}
	if err := s.PutPredictor(big); !errors.Is(err, ErrLimit) {
		t.Errorf("a large predictor: %v", err)
	}
}

// What is valid JSON and nothing else is an error, not a crash.
func TestStoreOfForeignValues(t *testing.T) {
	read := map[string]func(s *Store) error{
		string(setBucket): func(s *Store) error { _, err := s.List(); return err },
		string(rowBucket): func(s *Store) error { _, err := s.Dataset("d", nil); return err },
		string(operatorBucket): func(s *Store) error {
			_, err := s.Operators("d", []Model{{Name: "a", Operators: 1}})
			return err
		},
		string(predictorBucket): func(s *Store) error { _, err := s.Predictors(); return err },
	}
	for bucket, read := range read {
		for _, value := range []string{`"x"`, `[]`, `{"s":[[9,0,1,1,0]],"us":[1,1,1],"device":"d","models":3,"micros":[1,2],"layers":7}`} {
			s, db := openStore(t, t.TempDir())
			mustAppend(t, s, measured("d"))
			if err := s.PutOperators("d", Model{Name: "a", Operators: 1}, OperatorTimes{Size: 1, Micros: []float64{1}}); err != nil {
				t.Fatal(err)
			}
			if err := s.PutPredictor(&predictor.File{}); err != nil {
				t.Fatal(err)
			}
			spoil(t, db, bucket, value)
			if err := read(s); err == nil {
				t.Errorf("%s: %s was taken", bucket, value)
			}
		}
	}
}

// spoil replaces all values of a bucket.
func spoil(t *testing.T, db *bbolt.DB, bucket, value string) {
	t.Helper()
	err := db.Update(func(tx *bbolt.Tx) error {
		b := tx.Bucket([]byte(bucket))
		var keys [][]byte
		if err := b.ForEach(func(k, _ []byte) error { keys = append(keys, k); return nil }); err != nil {
			return err
		}
		for _, k := range keys {
			if err := b.Put(k, []byte(value)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
