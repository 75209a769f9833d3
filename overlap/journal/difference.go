package journal

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"
)

// Difference is where a replay decided otherwise than the log says.
type Difference struct {
	Line    int           `json:"line"` // of the log
	Event   string        `json:"event"`
	At      time.Duration `json:"at_ns"`
	Round   uint64        `json:"round,omitempty"` // that was running
	Field   string        `json:"field"`
	What    string        `json:"what"` // the field in words
	Logged  string        `json:"logged"`
	Decided string        `json:"decided"`
}

// nothing is what a log or a replay says that says nothing.
const nothing = "nothing"

// fields are those of a record that tell what was decided, in the order in
// which that comes about, and what they mean.
var fields = []struct{ key, what string }{
	{"p", "what the predictor was asked"},
	{"c", "the candidates"},
	{"solo", "the solo time of the group"},
	{"limit", "what the group had to keep to"},
	{"planned", "the time of the plan"},
	{"err", "the refusal"},
	{"stop", "the batch to stop"},
	{"running", "whether the batch runs"},
	{"round", "the round"},
	{"g", "the group"},
	{"predicted", "the predicted time"},
	{"bound", "the bound of the predicted time"},
	{"a", "the queries that ended"},
	{"r", "the batches that were released"},
}

// compare returns the first difference between a record and the line that a
// scheduler made of the same event now, or nil.
func compare(r *record, decided []byte) *Difference {
	if bytes.Equal(r.text, decided) {
		return nil
	}
	d := &Difference{Line: r.line, Event: string(r.Event), At: r.At}
	logged, now := values(r.text), values(decided)
	for _, f := range fields {
		d.Field, d.What = f.key, f.what
		if f.key == "p" {
			if d.Logged, d.Decided = questionsApart(logged["p"], now["p"]); d.Logged != d.Decided {
				return d
			}
		} else if !reflect.DeepEqual(logged[f.key], now[f.key]) {
			d.Logged, d.Decided = text(logged[f.key]), text(now[f.key])
			return d
		}
	}
	for _, key := range slices.Sorted(maps.Keys(logged)) {
		if d.Field = key; !reflect.DeepEqual(logged[key], now[key]) {
			d.What, d.Logged, d.Decided = "the event itself", text(logged[key]), text(now[key])
			return d
		}
	}
	return nil // they are written differently
}

// questionsApart returns the first questions to a predictor that are not the
// same.
func questionsApart(a, b any) (logged, decided string) {
	calls, others := list(a), list(b)
	for i := range max(len(calls), len(others)) {
		groups, others := list(at(calls, i)), list(at(others, i))
		for j := range max(len(groups), len(others)) {
			x, y := at(groups, j), at(others, j)
			if !reflect.DeepEqual(x, y) {
				return fmt.Sprintf("call %d, group %d: %s", i+1, j+1, text(x)), fmt.Sprintf("call %d, group %d: %s", i+1, j+1, text(y))
			}
		}
	}
	return "", ""
}

func list(v any) []any {
	l, _ := v.([]any)
	return l
}

func at(l []any, i int) any {
	if i < len(l) {
		return l[i]
	}
	return nil
}

// values decodes a line whose record was read before, or that was just made.
func values(line []byte) map[string]any {
	v := map[string]any{}
	d := json.NewDecoder(bytes.NewReader(line))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		return map[string]any{} // no line was made
	}
	return v
}

func text(v any) string {
	if v == nil {
		return nothing
	}
	b, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(b)
}
