package journal

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"
)

// difference is where a replay decided otherwise than the log has it.
type difference struct {
	Line  int           `json:"line"`
	Event string        `json:"event"`
	At    time.Duration `json:"at_ns"`
	// Round is the one that was running, 0 for none.
	Round uint64 `json:"round,omitempty"`
	// Field is the key of the first field that differs, What that in words.
	Field   string `json:"field"`
	What    string `json:"what"`
	Logged  string `json:"logged"`
	Decided string `json:"decided"`
}

// nothing stands for a field that a log or a replay leaves out.
const nothing = "nothing"

// decisions are the fields of a record that hold what was decided, by their
// keys, in the order in which that comes about.
var decisions = []struct{ key, what string }{
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

// compare returns the first difference between a record and the one that a
// scheduler made of the same event now, or nil.
func compare(logged, decided *record) *difference {
	var same line
	if same.put(decided) == nil && bytes.Equal(bytes.TrimSuffix(same, []byte("\n")), logged.text) {
		return nil
	}
	d := &difference{Line: logged.line, Event: string(logged.Event), At: logged.At}
	was, is := fields(logged), fields(decided)
	for _, f := range decisions {
		d.Field, d.What = f.key, f.what
		d.Logged, d.Decided = text(was[f.key]), text(is[f.key])
		if d.Logged == d.Decided {
			continue
		}
		if f.key == "p" {
			d.Logged, d.Decided = questionsApart(logged.Asked, decided.Asked)
		}
		return d
	}
	d.What = "the event itself"
	for _, d.Field = range slices.Sorted(maps.Keys(was)) {
		if d.Logged, d.Decided = text(was[d.Field]), text(is[d.Field]); d.Logged != d.Decided {
			return d
		}
	}
	return nil
}

// fields returns the fields of a record by their keys.
func fields(r *record) map[string]reflect.Value {
	v := reflect.ValueOf(r).Elem()
	byKey := map[string]reflect.Value{}
	for i := range v.NumField() {
		if key, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ","); key != "" {
			byKey[key] = v.Field(i)
		}
	}
	return byKey
}

// text returns a field as it stands in a log.
func text(v reflect.Value) string {
	if v.IsZero() || v.Kind() == reflect.Slice && v.Len() == 0 {
		return nothing
	}
	b, err := json.Marshal(v.Interface())
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// questionsApart returns the first questions to a predictor that are not the
// same.
func questionsApart(logged, decided json.RawMessage) (a, b string) {
	var calls, others [][][]int64
	if strict(logged, &calls) != nil || strict(decided, &others) != nil {
		return text(reflect.ValueOf(logged)), text(reflect.ValueOf(decided)) // one asked nothing
	}
	for i := range max(len(calls), len(others)) {
		groups, others := at(calls, i), at(others, i)
		for j := range max(len(groups), len(others)) {
			x, y := at(groups, j), at(others, j)
			if !slices.Equal(x, y) {
				return questionText(i, j, x), questionText(i, j, y)
			}
		}
	}
	return string(logged), string(decided)
}

// questionText names one question of a call.
func questionText(call, group int, numbers []int64) string {
	return fmt.Sprintf("call %d, group %d: %s", call+1, group+1, text(reflect.ValueOf(numbers)))
}

// at returns an item of a list, the zero value beyond its end.
func at[T any](list []T, i int) (item T) {
	if i < len(list) {
		item = list[i]
	}
	return item
}
