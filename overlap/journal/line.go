package journal

import (
	"encoding/json"
	"reflect"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/overlapd/overlapd/models"
)

// line is a record as it is written: JSON, appended by way of the fields of its
// event, since encoding/json takes longer and allocates.
type line []byte

// chosen stands for a next that has chosen a round.
const chosen event = "chosen"

// came are the keys of what came of an event, whichever it is.
const came = " stop? running? err? a? r? m?"

// layouts are the fields of each event, by their keys, in the order in which
// they are written. One with a ? is left out where it is zero.
var layouts = map[event][]field{
	eventArrive:     recordFields("e t id sv n seq? shape? arrived deadline priority? accuracy? fixed? alone? p?" + came),
	eventNext:       recordFields("e t p? v?" + came),
	chosen:          recordFields("e t p? v? c solo? limit? planned? round dev? predicted bound g" + came),
	eventPlan:       recordFields("e t p? v?" + came),
	eventFinish:     recordFields("e t round dev? took latency? s p?" + came),
	eventMoved:      recordFields("e t sv b dev? to? took as p?" + came),
	eventCancel:     recordFields("e t id p?" + came),
	eventDown:       recordFields("e t sv dev? p?" + came),
	eventUp:         recordFields("e t sv dev? p?" + came),
	eventLoad:       recordFields("e t service p?" + came),
	eventAdd:        recordFields("e t service p?" + came),
	eventChange:     recordFields("e t service p?" + came),
	eventRemove:     recordFields("e t sv p?" + came),
	eventDrain:      recordFields("e t p?" + came),
	eventCheckpoint: recordFields("e t state"),
	eventGap:        recordFields("e lost why"),
}

// field is a field of a record, or of an item in one of its lists.
type field struct {
	key    string
	before string  // what stands before its value; the first is always written
	index  int     // in the struct
	zero   bool    // it is written though it is zero
	items  []field // of the items, if it is a list of structs
}

func recordFields(keys string) []field { return structFields(reflect.TypeFor[record](), keys) }

// structFields returns the fields of a struct, those of the keys or else all, as
// their tags have them.
func structFields(typ reflect.Type, keys string) (fields []field) {
	byKey := map[string]field{}
	for i := range typ.NumField() {
		f := typ.Field(i)
		key, optional, _ := strings.Cut(f.Tag.Get("json"), ",")
		if key == "" {
			continue
		}
		found := field{key: key, index: i, zero: optional == ""}
		if f.Type.Kind() == reflect.Slice && f.Type.Elem().Kind() == reflect.Struct {
			found.items = structFields(f.Type.Elem(), "")
		}
		byKey[key], fields = found, append(fields, found)
	}
	if keys != "" {
		fields = fields[:0]
	}
	for _, key := range strings.Fields(keys) {
		key, optional := strings.CutSuffix(key, "?")
		f := byKey[key]
		f.zero = !optional
		fields = append(fields, f)
	}
	for i := range fields {
		fields[i].before = `,"` + fields[i].key + `":`
	}
	fields[0].before = "{" + fields[0].before[1:]
	return fields
}

// layout returns the fields that the record has.
func (r *record) layout() []field {
	if r.Event == eventNext && r.Round != 0 {
		return layouts[chosen]
	}
	return layouts[r.Event]
}

// put appends a record and the end of its line. It fails if the state of a
// checkpoint cannot be written.
func (l *line) put(r *record) error {
	err := l.object(reflect.ValueOf(r).Elem(), r.layout())
	*l = append(*l, '\n')
	return err
}

func (l *line) object(v reflect.Value, fields []field) (err error) {
	for i := range fields {
		f := &fields[i]
		x := v.Field(f.index)
		if !f.zero && zero(x) {
			continue
		}
		*l = append(*l, f.before...)
		if verr := l.value(x, f); verr != nil {
			err = verr
		}
	}
	*l = append(*l, '}')
	return err
}

func zero(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Int, reflect.Int64:
		return v.Int() == 0
	case reflect.Slice, reflect.String:
		return v.Len() == 0
	}
	return v.IsZero()
}

func (l *line) value(v reflect.Value, f *field) error {
	switch v.Kind() {
	case reflect.Int, reflect.Int64:
		*l = strconv.AppendInt(*l, v.Int(), 10)
	case reflect.Uint64:
		if f.key != "shape" {
			*l = strconv.AppendUint(*l, v.Uint(), 10)
		} else {
			*l = append(strconv.AppendUint(append(*l, '"'), v.Uint(), 16), '"')
		}
	case reflect.Float64:
		*l = strconv.AppendFloat(*l, v.Float(), 'g', -1, 64)
	case reflect.String:
		if strings.ContainsFunc(v.String(), escaped) {
			return l.json(v.String())
		}
		*l = append(append(append(*l, '"'), v.String()...), '"')
	case reflect.Slice:
		if f.key == "p" {
			*l = append(*l, v.Bytes()...)
			return nil
		}
		*l = append(*l, '[')
		for i := range v.Len() {
			if i > 0 {
				*l = append(*l, ',')
			}
			if f.items != nil {
				_ = l.object(v.Index(i), f.items)
			} else {
				_ = l.value(v.Index(i), f)
			}
		}
		*l = append(*l, ']')
	default:
		if v.Elem().Kind() == reflect.Int64 {
			return l.value(v.Elem(), f)
		}
		return l.json(v.Interface())
	}
	return nil
}

// escaped reports whether JSON may not have a character as it is.
func escaped(c rune) bool { return c < ' ' || c == '"' || c == '\\' || c == utf8.RuneError }

func (l *line) json(v any) error {
	text, err := json.Marshal(v)
	*l = append(*l, text...)
	return err
}

// item starts an item of an array, after its bracket or another item.
func (l *line) item() {
	if (*l)[len(*l)-1] != '[' {
		*l = append(*l, ',')
	}
}

// call appends a call of the predictor, see question.
func (l *line) call(groups []models.Group, estimates []models.Estimate) {
	l.item()
	*l = append(*l, '[')
	var last []models.Span
	for i := range groups {
		spans := groups[i].Spans
		same := 0
		for same < min(len(last), len(spans)) && alike(last[same], spans[same]) {
			same++
		}
		l.item()
		*l = append(*l, '[')
		l.numbers(int64(same), int64(estimates[i].Latency), int64(estimates[i].Bound))
		for _, s := range spans[same:] {
			size := int64(s.Size)
			if s.Series {
				size = -size
			}
			l.numbers(int64(s.Service), int64(s.Start), int64(s.End), size, int64(s.SeqLen))
		}
		*l = append(*l, ']')
		last = spans
	}
	*l = append(*l, ']')
}

func (l *line) numbers(values ...int64) {
	for _, v := range values {
		l.item()
		*l = strconv.AppendInt(*l, v, 10)
	}
}
