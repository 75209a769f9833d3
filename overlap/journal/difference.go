package journal

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"reflect"
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

// compare returns the first difference between a record and the one that a
// scheduler made of the same event now, or nil. What was decided comes before
// what the event brought.
func compare(logged, decided *record) *difference {
	var same line
	if same.put(decided) == nil && bytes.Equal(bytes.TrimSuffix(same, []byte("\n")), logged.text) {
		return nil
	}
	d := &difference{Line: logged.line, Event: string(logged.Event), At: logged.At}
	was, is := reflect.ValueOf(logged).Elem(), reflect.ValueOf(decided).Elem()
	for _, decisions := range []bool{true, false} {
		for i := range was.NumField() {
			tag := was.Type().Field(i).Tag
			what := tag.Get("what")
			if d.Field, _, _ = strings.Cut(tag.Get("json"), ","); d.Field == "" || decisions != (what != "") {
				continue
			}
			d.What = cmp.Or(what, "the event itself")
			if d.Logged, d.Decided = text(was.Field(i)), text(is.Field(i)); d.Logged == d.Decided {
				continue
			}
			if d.Field == "p" {
				d.Logged, d.Decided = apart(questionTexts(d.Logged), questionTexts(d.Decided))
			}
			return d
		}
	}
	return nil
}

// text returns a field as it stands in a log.
func text(v reflect.Value) string {
	if zero(v) {
		return nothing
	}
	b, err := json.Marshal(v.Interface())
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// questionTexts returns what the predictor was asked, each group with its place.
func questionTexts(asked string) (texts []string) {
	var calls [][]json.RawMessage
	_ = strict([]byte(asked), &calls) // none, if nothing was asked
	for i, call := range calls {
		for j, group := range call {
			texts = append(texts, fmt.Sprintf("call %d, group %d: %s", i+1, j+1, group))
		}
	}
	return texts
}

// apart returns the first items of two lists that are not the same.
func apart(a, b []string) (string, string) {
	i := 0
	for i < min(len(a), len(b)) && a[i] == b[i] {
		i++
	}
	a, b = append(a, nothing), append(b, nothing)
	return a[i], b[i]
}
