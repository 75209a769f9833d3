package journal

import (
	"encoding/json"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/overlapd/overlapd/models"
)

// line is a record as it is written: JSON, by the tags of its fields. encoding/json writes the
// same, but takes longer and allocates.
type line []byte

// field is a field of a struct. Its key has quotes and a colon. If it is a struct, or a list of
// some, fields are those of the struct; inline ones take its place.
type field struct {
	key                  string
	index                int
	omit, quoted, inline bool
	fields               []field
}

// brings are the keys of what each kind of event brings.
var brings = map[string]string{
	"arrive": "query", "cancel": "query", "finish": "outcome", "moved": "move took as", "down": "sv dev", "up": "sv dev",
	"load": "service", "add": "service", "change": "service", "remove": "sv", "drain": "-",
}

// layouts are the fields of the records of each type.
var layouts = map[string][]field{}

func init() {
	all := fieldsOf(reflect.TypeFor[record]())
	at := slices.IndexFunc(all, func(f field) bool { return f.inline }) // its event
	for _, name := range []string{typeReady, typeAdvance, typeCheckpoint, typeGap} {
		layouts[name] = slices.Delete(slices.Clone(all), at, at+1)
	}
	for name, keys := range brings {
		event := all[at]
		event.fields = slices.DeleteFunc(slices.Clone(event.fields), func(f field) bool {
			return !slices.Contains(strings.Fields(keys), strings.Trim(f.key, `":`))
		})
		layouts[name] = append(append(all[:at:at], event), all[at+1:at+4]...) // and p, v, err
	}
}

func fieldsOf(typ reflect.Type) (fields []field) {
	for i := range typ.NumField() {
		f := typ.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "-" || name == "state" || !f.IsExported() {
			continue // put writes a state
		}
		x := field{index: i, omit: strings.Contains(options, "omit"), quoted: strings.Contains(options, "string")}
		x.inline = f.Anonymous && name == ""
		if name == "" {
			name = f.Name
		}
		x.key = `"` + name + `":`
		of := f.Type
		for of.Kind() == reflect.Pointer || of.Kind() == reflect.Slice {
			of = of.Elem()
		}
		if of.Kind() == reflect.Struct {
			x.fields = fieldsOf(of)
		}
		fields = append(fields, x)
	}
	return fields
}

// put appends a record and the end of its line. It fails if the state of a checkpoint cannot be
// written.
func (l *line) put(r *record) error {
	*l = append(*l, '{')
	l.members(reflect.ValueOf(r).Elem(), layouts[r.Type])
	var err error
	if r.State != nil {
		*l = append(*l, `,"state":`...)
		err = l.json(r.State)
	}
	*l = append(*l, '}', '\n')
	return err
}

// members appends the fields of a struct.
func (l *line) members(v reflect.Value, fields []field) {
	for i := range fields {
		f := &fields[i]
		x := v.Field(f.index)
		if x.Kind() == reflect.Pointer {
			if x.IsNil() {
				continue
			}
			x = x.Elem()
		}
		if f.inline {
			l.members(x, f.fields)
			continue
		}
		if f.omit && zero(x) {
			continue
		}
		l.next('{')
		*l = append(*l, f.key...)
		l.value(x, f)
	}
}

// next appends a comma, unless what follows is the first behind a bracket.
func (l *line) next(bracket byte) {
	if (*l)[len(*l)-1] != bracket {
		*l = append(*l, ',')
	}
}

func zero(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Slice, reflect.String:
		return v.Len() == 0
	case reflect.Int, reflect.Int64:
		return v.Int() == 0
	}
	return v.IsZero()
}

func (l *line) value(v reflect.Value, f *field) {
	switch v.Kind() {
	case reflect.Bool:
		*l = strconv.AppendBool(*l, v.Bool())
	case reflect.Int, reflect.Int64:
		*l = strconv.AppendInt(*l, v.Int(), 10)
	case reflect.Uint8:
		l.text(models.Status(v.Uint()).String())
	case reflect.Uint64:
		if f.quoted {
			*l = append(strconv.AppendUint(append(*l, '"'), v.Uint(), 10), '"')
			return
		}
		*l = strconv.AppendUint(*l, v.Uint(), 10)
	case reflect.Float64:
		*l = strconv.AppendFloat(*l, v.Float(), 'g', -1, 64)
	case reflect.String:
		l.text(v.String())
	case reflect.Struct:
		*l = append(*l, '{')
		l.members(v, f.fields)
		*l = append(*l, '}')
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 { // JSON already
			*l = append(*l, v.Bytes()...)
			return
		}
		*l = append(*l, '[')
		for i := range v.Len() {
			l.next('[')
			l.value(v.Index(i), f)
		}
		*l = append(*l, ']')
	}
}

func (l *line) text(s string) {
	if strings.ContainsFunc(s, escaped) {
		_ = l.json(s)
		return
	}
	*l = append(append(append(*l, '"'), s...), '"')
}

// escaped reports whether JSON may not have a character as it is.
func escaped(c rune) bool { return c < ' ' || c == '"' || c == '\\' || c == utf8.RuneError }

func (l *line) json(v any) error {
	text, err := json.Marshal(v)
	*l = append(*l, text...)
	return err
}

// call appends a call of the predictor, see question.
func (l *line) call(groups []models.Group, estimates []models.Estimate) {
	l.next('[')
	*l = append(*l, '[')
	var last []models.Span
	for i := range groups {
		spans := groups[i].Spans
		same := 0
		for same < min(len(last), len(spans)) && alike(last[same], spans[same]) {
			same++
		}
		l.next('[')
		*l = append(*l, '[')
		l.numbers(int64(same), int64(estimates[i].Latency), int64(estimates[i].Bound))
		for _, s := range spans[same:] {
			l.numbers(int64(s.Service), int64(s.Start), int64(s.End), int64(s.Size), int64(s.SeqLen))
		}
		*l = append(*l, ']')
		last = spans
	}
	*l = append(*l, ']')
}

func (l *line) numbers(values ...int64) {
	for _, v := range values {
		l.next('[')
		*l = strconv.AppendInt(*l, v, 10)
	}
}
