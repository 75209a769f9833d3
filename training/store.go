package training

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.etcd.io/bbolt"

	"github.com/overlapd/overlapd/internal/stats"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/predictor"
)

// The buckets of the state file. Values are JSON, and buckets are not nested.
var (
	// setBucket maps the ID of a set to a storedSet.
	setBucket = []byte("measured-sets")
	// rowBucket maps the ID of a set and a sequence number to a storedRow.
	rowBucket = []byte("measured-groups")
	// operatorBucket maps the ID of a set of one model, a batch size and a sequence length to
	// OperatorTimes.
	operatorBucket = []byte("operator-times")
	// predictorBucket maps a time to a predictor.File.
	predictorBucket = []byte("predictors")
)

// rowFill is how full pages are left when they split. It is high because the keys of one set
// are appended in ascending order.
const rowFill = 0.9

// errNoSet is returned when no set has the given ID.
var errNoSet = errors.New("no such set of measured groups")

// Store keeps measurements in a state file. It stores rows separately for each device and set
// of models, so that the measurements of a pair can be used by every daemon that has both
// models. It is as safe for concurrent use as the state file.
type Store struct {
	db stateFile
}

// stateFile is an open state file: a bbolt.DB or a wrapper of one.
type stateFile interface {
	View(func(*bbolt.Tx) error) error
	Update(func(*bbolt.Tx) error) error
}

// NewStore returns the store in a state file, and creates its buckets. The caller still owns
// the file.
func NewStore(db stateFile) (*Store, error) {
	err := db.Update(func(tx *bbolt.Tx) error {
		for _, name := range [][]byte{setBucket, rowBucket, operatorBucket, predictorBucket} {
			if _, err := tx.CreateBucketIfNotExists(name); err != nil {
				return err
			}
		}
		return nil
	})
	return &Store{db}, err
}

// storedSet holds what all rows of a set have in common.
type storedSet struct {
	Device string `json:"device"`
	// Models are sorted by name.
	Models []Model `json:"models"`
}

// id returns an ID that is derived from everything that distinguishes sets.
func (s *storedSet) id() string {
	// Marshal cannot fail: the set holds only strings and integers.
	text, _ := json.Marshal(s)
	sum := sha256.Sum256(text)
	return fmt.Sprintf("%x", sum[:6])
}

// of reports whether list has all models of the set. A model without a hash, as in imported
// data, knows only the largest end of its spans, so it also matches a model with more
// operators.
func (s *storedSet) of(list []Model) bool {
	return !slices.ContainsFunc(s.Models, func(m Model) bool {
		return !slices.ContainsFunc(list, func(l Model) bool {
			return m == l || m.Hash == "" && l.Hash == "" && m.Name == l.Name && m.Operators <= l.Operators
		})
	})
}

// storedRow is a row in a compact form, because there are many of them.
type storedRow struct {
	// Spans holds the index in the set, start, end, size and sequence length of each span.
	Spans   [][5]int `json:"s"`
	Repeats int      `json:"n,omitempty"`
	// Micros holds median, mean and standard deviation.
	Micros [3]float64 `json:"us"`
	Device float64    `json:"dev,omitempty"`
}

func (r storedRow) row() Row {
	row := Row{Repeats: r.Repeats, Median: r.Micros[0], Mean: r.Micros[1], Std: r.Micros[2], Device: r.Device}
	for _, s := range r.Spans {
		row.Group.Spans = append(row.Group.Spans, models.Span{Service: models.ServiceID(s[0]), Start: s[1], End: s[2], Size: s[3], SeqLen: s[4]})
	}
	return row
}

// Append adds the rows of d in one transaction, so they are on disk when it returns. Its cost
// depends on the number of rows added, not on those stored.
func (s *Store) Append(d *Dataset) error {
	if err := d.Check(); err != nil {
		return err
	}
	return s.db.Update(func(tx *bbolt.Tx) error {
		sets, rows := tx.Bucket(setBucket), tx.Bucket(rowBucket)
		rows.FillPercent = rowFill
		for i := range d.Rows {
			set, row := d.split(&d.Rows[i])
			id := set.id()
			if sets.Get([]byte(id)) == nil {
				if err := putJSON(sets, []byte(id), set); err != nil {
					return err
				}
			}
			// The sequence is ascending, so the row goes after the last one of the set.
			n, err := rows.NextSequence()
			if err != nil {
				return err
			}
			if err := putJSON(rows, fmt.Appendf(nil, "%s/%016x", id, n), row); err != nil {
				return err
			}
		}
		return nil
	})
}

// split returns the set of a row, and the row with models as indices of that set.
func (d *Dataset) split(r *Row) (storedSet, storedRow) {
	set := storedSet{Device: d.Device}
	row := storedRow{Repeats: r.Repeats, Micros: [3]float64{r.Median, r.Mean, r.Std}, Device: r.Device}
	for i, span := range r.Group.Spans {
		set.Models = append(set.Models, d.Models[span.Service])
		row.Spans = append(row.Spans, [5]int{i, span.Start, span.End, span.Size, span.SeqLen})
	}
	return set, row
}

// putJSON stores a value as JSON.
func putJSON(b *bbolt.Bucket, key []byte, value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return b.Put(key, text)
}

// Dataset returns the rows of a device whose models are all in the list, or all its rows if
// list is nil. Models match if all their fields are equal; without a hash, their names must be
// equal. The dataset has only the models that occur in its rows.
func (s *Store) Dataset(device string, list []Model) (*Dataset, error) {
	d, err := s.read(func(_ string, set *storedSet) bool {
		return set.Device == device && (list == nil || set.of(list))
	})
	if err == nil {
		d.Device = device
	}
	return d, err
}

// Set returns the rows of the set with the given ID.
func (s *Store) Set(id string) (*Dataset, error) {
	d, err := s.read(func(other string, _ *storedSet) bool { return id == other })
	if err == nil && len(d.Models) == 0 {
		err = fmt.Errorf("%w: %s", errNoSet, id)
	}
	return d, err
}

// read returns the rows of all wanted sets, which must be of one device.
func (s *Store) read(wanted func(string, *storedSet) bool) (*Dataset, error) {
	var datasets []*Dataset
	err := s.db.View(func(tx *bbolt.Tx) error {
		return eachSet(tx, func(id string, set *storedSet) error {
			if !wanted(id, set) {
				return nil
			}
			d := &Dataset{Device: set.Device, Models: set.Models}
			datasets = append(datasets, d)
			if err := eachRow(tx, id, func(r Row) { d.Rows = append(d.Rows, r) }); err != nil {
				return err
			}
			return d.Check()
		})
	})
	if err != nil {
		return nil, err
	}
	return Merge(datasets...)
}

// each calls do for the values of a bucket whose keys have a prefix. Errors name what the
// values are, and the key.
func each[T any](b *bbolt.Bucket, prefix, what string, do func(key string, value *T) error) error {
	c := b.Cursor()
	for k, text := c.Seek([]byte(prefix)); bytes.HasPrefix(k, []byte(prefix)) && k != nil; k, text = c.Next() {
		value := new(T)
		err := json.Unmarshal(text, value)
		if err == nil {
			err = do(string(k), value)
		}
		if err != nil {
			return fmt.Errorf("%s %s: %w", what, k, err)
		}
	}
	return nil
}

// eachSet calls do for every set.
func eachSet(tx *bbolt.Tx, do func(id string, set *storedSet) error) error {
	return each(tx.Bucket(setBucket), "", "measured set", do)
}

// eachRow calls do for the rows of a set, in the order in which they were appended.
func eachRow(tx *bbolt.Tx, id string, do func(Row)) error {
	return each(tx.Bucket(rowBucket), id+"/", "measured group", func(_ string, r *storedRow) error {
		do(r.row())
		return nil
	})
}

// Delete removes a set and its rows.
func (s *Store) Delete(id string) error {
	return s.db.Update(func(tx *bbolt.Tx) error {
		sets := tx.Bucket(setBucket)
		if sets.Get([]byte(id)) == nil {
			return fmt.Errorf("%w: %s", errNoSet, id)
		}
		c := tx.Bucket(rowBucket).Cursor()
		prefix := []byte(id + "/")
		// Seeking again is needed because Delete may move the cursor.
		for k, _ := c.Seek(prefix); bytes.HasPrefix(k, prefix); k, _ = c.Seek(prefix) {
			if err := c.Delete(); err != nil {
				return err
			}
		}
		return sets.Delete([]byte(id))
	})
}

// PutOperators stores the operator times of a model on a device. It replaces earlier ones with
// the same batch size and sequence length.
func (s *Store) PutOperators(device string, m Model, o OperatorTimes) error {
	if err := o.check(m); err != nil {
		return err
	}
	set := storedSet{Device: device, Models: []Model{m}}
	id := set.id()
	return s.db.Update(func(tx *bbolt.Tx) error {
		return putJSON(tx.Bucket(operatorBucket), fmt.Appendf(nil, "%s/%d/%d", id, o.Size, o.SeqLen), o)
	})
}

// check returns an error unless there is a plausible time for each operator of the model.
func (o *OperatorTimes) check(m Model) error {
	if len(o.Micros) != m.Operators || o.Size < 1 || o.SeqLen < 0 {
		return fmt.Errorf("%w: %d operator times of %s, which has %d operators", ErrFormat, len(o.Micros), m.Name, m.Operators)
	}
	for _, v := range o.Micros {
		if err := checkMicros(v, true); err != nil {
			return fmt.Errorf("operator times of %s: %w", m.Name, err)
		}
	}
	return nil
}

// Operators returns the operator times of the models on a device, by name, sorted by batch size
// and sequence length.
func (s *Store) Operators(device string, list []Model) (map[string][]OperatorTimes, error) {
	found := map[string][]OperatorTimes{}
	err := s.db.View(func(tx *bbolt.Tx) error {
		for _, m := range list {
			set := storedSet{Device: device, Models: []Model{m}}
			err := each(tx.Bucket(operatorBucket), set.id()+"/", "operator times", func(_ string, o *OperatorTimes) error {
				found[m.Name] = append(found[m.Name], *o)
				return o.check(m)
			})
			if err != nil {
				return err
			}
			slices.SortFunc(found[m.Name], func(a, b OperatorTimes) int {
				return cmp.Or(cmp.Compare(a.Size, b.Size), cmp.Compare(a.SeqLen, b.SeqLen))
			})
		}
		return nil
	})
	return found, err
}

// Limits of the history of predictors.
const (
	maxPredictors     = 32
	maxPredictorBytes = 16 << 20
)

// predictorTime is the format of keys that sort by time.
const predictorTime = "20060102T150405.000000000Z"

// PutPredictor stores a predictor that was trained on this host. Beyond maxPredictors, it
// removes the oldest.
func (s *Store) PutPredictor(f *predictor.File) error {
	text, err := json.Marshal(f)
	if err != nil {
		return err
	}
	if len(text) > maxPredictorBytes {
		return fmt.Errorf("%w: a predictor of %d bytes, the limit is %d", ErrLimit, len(text), maxPredictorBytes)
	}
	return s.db.Update(func(tx *bbolt.Tx) error {
		b := tx.Bucket(predictorBucket)
		if err := b.Put([]byte(f.Created.UTC().Format(predictorTime)), text); err != nil {
			return err
		}
		var keys [][]byte
		if err := b.ForEach(func(k, _ []byte) error { keys = append(keys, bytes.Clone(k)); return nil }); err != nil {
			return err
		}
		for _, k := range keys[:max(len(keys)-maxPredictors, 0)] {
			if err := b.Delete(k); err != nil {
				return err
			}
		}
		return nil
	})
}

// Predictors returns the predictors that were trained on this host, newest first.
func (s *Store) Predictors() ([]*predictor.File, error) {
	var files []*predictor.File
	err := s.db.View(func(tx *bbolt.Tx) error {
		return each(tx.Bucket(predictorBucket), "", "predictor of", func(_ string, f *predictor.File) error {
			files = append(files, f)
			return nil
		})
	})
	slices.Reverse(files)
	return files, err
}

// Summary describes a set of measured groups.
type Summary struct {
	ID      string  `json:"id"`
	Device  string  `json:"device"`
	Models  []Model `json:"models"`
	Rows    int     `json:"rows"`
	Sizes   []int   `json:"sizes"`
	SeqLens []int   `json:"seq_lens"`

	// Median is the median over the rows of their medians, in microseconds. Spread is the median of
	// standard deviation over mean. Share is the median of the time by the device's own clock over
	// the latency, or 0 if no row has the former.
	Median float64 `json:"median_us"`
	Share  float64 `json:"device_share,omitempty"`
	Spread float64 `json:"spread"`
}

// Name returns the names of the models, joined.
func (s *Summary) Name() string {
	names := make([]string, len(s.Models))
	for i, m := range s.Models {
		names[i] = m.Name
	}
	return strings.Join(names, " + ")
}

// List returns summaries of all sets, sorted by device, number of models and names.
func (s *Store) List() ([]Summary, error) {
	var list []Summary
	err := s.db.View(func(tx *bbolt.Tx) error {
		return eachSet(tx, func(id string, set *storedSet) error {
			summary, err := summarize(tx, id, set)
			list = append(list, summary)
			return err
		})
	})
	slices.SortFunc(list, func(a, b Summary) int {
		return cmp.Or(strings.Compare(a.Device, b.Device), cmp.Compare(len(a.Models), len(b.Models)),
			strings.Compare(a.Name(), b.Name()), strings.Compare(a.ID, b.ID))
	})
	return list, err
}

// summarize reads all rows of a set, because none of the statistics is stored.
func summarize(tx *bbolt.Tx, id string, set *storedSet) (Summary, error) {
	s := Summary{ID: id, Device: set.Device, Models: set.Models, Sizes: []int{}, SeqLens: []int{}}
	var medians, spreads, shares []float64
	sizes, seqLens := map[int]bool{}, map[int]bool{}
	err := eachRow(tx, id, func(r Row) {
		medians, spreads = append(medians, r.Median), append(spreads, r.Std/r.Mean)
		if r.Device > 0 {
			shares = append(shares, r.Device/r.Median)
		}
		for _, span := range r.Group.Spans {
			sizes[span.Size] = true
			if span.SeqLen > 0 {
				seqLens[span.SeqLen] = true
			}
		}
	})
	s.Sizes, s.SeqLens = slices.AppendSeq(s.Sizes, maps.Keys(sizes)), slices.AppendSeq(s.SeqLens, maps.Keys(seqLens))
	slices.Sort(s.Sizes)
	slices.Sort(s.SeqLens)
	if s.Rows = len(medians); s.Rows > 0 {
		s.Median, s.Spread = stats.Median(medians), stats.Median(spreads)
	}
	if len(shares) > 0 {
		s.Share = stats.Median(shares)
	}
	return s, err
}
