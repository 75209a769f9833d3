package training

import (
	"cmp"
	"slices"
	"strings"

	"go.etcd.io/bbolt"

	"github.com/overlapd/overlapd/stats"
)

// Summary is what a set of measured groups holds.
type Summary struct {
	ID      string  `json:"id"`
	Device  string  `json:"device"`
	Models  []Model `json:"models"`
	Rows    int     `json:"rows"`
	Sizes   []int   `json:"sizes"`                  // batch sizes
	SeqLens []int   `json:"seq_lens"`               // none if no model has one
	Median  float64 `json:"median_us"`              // of the rows' medians
	Share   float64 `json:"device_share,omitempty"` // time by the device's own clock by latency, median over the rows that have it; 0 if none has
	Spread  float64 `json:"spread"`                 // of the runs of a group: standard deviation by mean, median over the rows
}

// Name joins the names of the models.
func (s *Summary) Name() string {
	names := make([]string, len(s.Models))
	for i, m := range s.Models {
		names[i] = m.Name
	}
	return strings.Join(names, " + ")
}

// List returns summaries of all sets, by device, number of models and names.
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
			strings.Compare(a.Name(), b.Name()), strings.Compare(string(a.ID), string(b.ID)))
	})
	return list, err
}

func summarize(tx *bbolt.Tx, id string, set *storedSet) (Summary, error) {
	s := Summary{ID: id, Device: set.Device, Models: set.Models, Sizes: []int{}, SeqLens: []int{}}
	var medians, spreads, shares []float64
	err := eachRow(tx, id, func(r Row) {
		medians, spreads = append(medians, r.Median), append(spreads, r.Std/r.Mean)
		if r.Device > 0 {
			shares = append(shares, r.Device/r.Median)
		}
		for _, span := range r.Group.Spans {
			s.Sizes = insert(s.Sizes, span.Size)
			if span.SeqLen > 0 {
				s.SeqLens = insert(s.SeqLens, span.SeqLen)
			}
		}
	})
	if s.Rows = len(medians); s.Rows > 0 {
		s.Median, s.Spread = stats.Median(medians), stats.Median(spreads)
	}
	if len(shares) > 0 {
		s.Share = stats.Median(shares)
	}
	return s, err
}

// insert adds a value to a sorted list that does not have it.
func insert(sorted []int, v int) []int {
	if i, found := slices.BinarySearch(sorted, v); !found {
		return slices.Insert(sorted, i, v)
	}
	return sorted
}
