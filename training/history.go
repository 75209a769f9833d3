package training

import (
	"bytes"
	"encoding/json"
	"fmt"

	"go.etcd.io/bbolt"

	"github.com/overlapd/overlapd/predictor"
)

// Limits of the history of predictors.
const (
	maxPredictors     = 32
	maxPredictorBytes = 16 << 20
)

// predictorTime makes keys that sort by time.
const predictorTime = "20060102T150405.000000000Z"

// PutPredictor keeps a predictor that was trained here. Of more than 32, the
// oldest is forgotten.
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
		for _, k := range oldKeys(b) {
			if err := b.Delete(k); err != nil {
				return err
			}
		}
		return nil
	})
}

// oldKeys returns the keys before the newest maxPredictors.
func oldKeys(b *bbolt.Bucket) (old [][]byte) {
	kept := 0
	c := b.Cursor()
	for k, _ := c.Last(); k != nil; k, _ = c.Prev() {
		if kept++; kept > maxPredictors {
			old = append(old, bytes.Clone(k))
		}
	}
	return old
}

// Predictors returns the predictors that were trained here, newest first.
func (s *Store) Predictors() ([]*predictor.File, error) {
	var files []*predictor.File
	err := s.db.View(func(tx *bbolt.Tx) error {
		c := tx.Bucket(predictorBucket).Cursor()
		for k, text := c.Last(); k != nil; k, text = c.Prev() {
			f := &predictor.File{}
			if err := json.Unmarshal(text, f); err != nil {
				return fmt.Errorf("predictor of %s: %w", k, err)
			}
			files = append(files, f)
		}
		return nil
	})
	return files, err
}
