package training

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"

	"go.etcd.io/bbolt"
)

// PutOperators keeps the operator times of a model on a device in the place of
// older ones for the same batch size and sequence length.
func (s *Store) PutOperators(device string, m Model, o OperatorTimes) error {
	if err := o.check(m); err != nil {
		return err
	}
	set := storedSet{Device: device, Models: []Model{m}}
	id, err := set.id()
	if err != nil {
		return err
	}
	return s.db.Update(func(tx *bbolt.Tx) error {
		return putJSON(tx.Bucket(operatorBucket), fmt.Appendf(nil, "%s/%d/%d", id, o.Size, o.SeqLen), o)
	})
}

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

// Operators returns the operator times of each of the models on a device, by
// name, sorted by batch size and sequence length.
func (s *Store) Operators(device string, list []Model) (map[string][]OperatorTimes, error) {
	found := map[string][]OperatorTimes{}
	err := s.db.View(func(tx *bbolt.Tx) error {
		for _, m := range list {
			set := storedSet{Device: device, Models: []Model{m}}
			id, err := set.id()
			if err != nil {
				return err
			}
			err = eachKey(tx.Bucket(operatorBucket), string(id)+"/", func(k, text []byte) error {
				var o OperatorTimes
				if err := json.Unmarshal(text, &o); err != nil {
					return fmt.Errorf("operator times %s: %w", k, err)
				}
				if err := o.check(m); err != nil {
					return err
				}
				found[m.Name] = append(found[m.Name], o)
				return nil
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
