package config

import (
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/agext/levenshtein"
	"github.com/pelletier/go-toml/v2"
)

// key is one key of the configuration, declared by the tags of a field:
//
//	toml     its name; a struct without one has its keys in the table around it
//	default  its value where the file does not have it, in TOML (strings without quotes)
//	missing  in words, what holds where the file does not have it and no default is declared
//	min, max the bounds of its value, both included
//	zero     0 may be said besides what is within the bounds, and stands for this
//	oneof    the words that it may be
//	path     a relative path is below the folder of the configuration; so is each of a list
//	gpu      it concerns a GPU, and may not be set where there cannot be one
//	reload   "now": a reload applies it; "worker": of a service, it needs a new
//	         worker; "replicas": of a service, it says where it has workers; "name": it
//	         names a service or variant, and another name is another service. Of what
//	         else changes, a service needs no new worker, and all other keys need a
//	         restart of the daemon.
//
// The comment above the field is the sentence that users read about the key, as [Explain]
// returns it. Its name contains those of its tables, such as limits.hosts or service[1].name.
// The type of the field is that of the value, too: an int64 is a number of
// bytes, which may be written with a unit, and a time.Duration has one.
type key struct {
	name  string
	tag   reflect.StructTag
	value reflect.Value
}

// walk calls visit for the keys of a table and its subtables, in the order of their
// declaration. An array of tables is visited as a key, followed by the keys of each entry.
func walk(prefix string, table reflect.Value, visit func(key)) {
	for i := range table.NumField() {
		f := table.Type().Field(i)
		k := key{prefix + f.Tag.Get("toml"), f.Tag, table.Field(i)}
		if f.Type.Kind() == reflect.Pointer {
			continue // not a part of the file
		}
		if f.Type.Kind() == reflect.Struct {
			if k.name != prefix {
				k.name += "."
			}
			walk(k.name, k.value, visit)
			continue
		}
		visit(k)
		if k.isTables() {
			for n := range k.value.Len() {
				walk(fmt.Sprintf("%s[%d].", k.name, n), k.value.Index(n), visit)
			}
		}
	}
}

// isTables reports whether the key is an array of tables.
func (k key) isTables() bool {
	return k.value.Kind() == reflect.Slice && k.value.Type().Elem().Kind() == reflect.Struct
}

// setDefaults sets each key of a *Config or *Service to its default.
func setDefaults(table any) {
	walk("", reflect.ValueOf(table).Elem(), func(k key) {
		if text, ok := k.tag.Lookup("default"); ok {
			k.value.Set(k.declared(text))
		}
	})
}

// declared converts a value in a tag to the type of the key. It panics if it cannot,
// because tags are part of the program.
func (k key) declared(text string) reflect.Value {
	v := reflect.New(k.value.Type()).Elem()
	var said any = text
	switch v.Interface().(type) {
	case string, int64, time.Duration: // written as they are
	default:
		var file map[string]any
		if err := toml.Unmarshal([]byte("v = "+text), &file); err != nil {
			panic(fmt.Sprintf("key %s is declared with %q: %v", k.name, text, err))
		}
		said = file["v"]
	}
	if fault := set(v, said); fault != "" {
		panic(fmt.Sprintf("key %s is declared with %q: %s", k.name, text, fault))
	}
	return v
}

// isDefault reports whether the key has its default value.
func (k key) isDefault() bool {
	if text, ok := k.tag.Lookup("default"); ok {
		return reflect.DeepEqual(k.value.Interface(), k.declared(text).Interface())
	}
	return k.value.IsZero()
}

// written has the name of each type of value, how its values are written, and how those are
// read that are written as text.
var written = map[reflect.Type]struct {
	name, as string
	parse    func(string) (any, error)
}{
	reflect.TypeFor[string]():   {name: "string", as: "a string"},
	reflect.TypeFor[bool]():     {name: "boolean", as: "true or false"},
	reflect.TypeFor[int]():      {name: "integer", as: "an integer"},
	reflect.TypeFor[float64]():  {name: "number", as: "a number"},
	reflect.TypeFor[[]string](): {name: "list of strings", as: "an array of strings"},
	reflect.TypeFor[[]int]():    {name: "list of integers", as: "an array of integers"},
	reflect.TypeFor[int64](): {"size", `a number of bytes, or a string such as "64MiB"`,
		func(text string) (any, error) { return parseBytes(text) }},
	reflect.TypeFor[time.Duration](): {"duration", `a string with a unit, such as "100ms" or "30s"`,
		func(text string) (any, error) { return time.ParseDuration(text) }},
}

// set assigns a value parsed from TOML to a field, or returns why it cannot.
func set(to reflect.Value, v any) (fault string) {
	w, ok := written[to.Type()]
	if !ok {
		panic(fmt.Sprintf("no key has a %v", to.Type()))
	}
	if list, ok := v.([]any); ok && to.Kind() == reflect.Slice {
		to.SetZero()
		for _, item := range list {
			one := reflect.New(to.Type().Elem()).Elem()
			if set(one, item) != "" {
				return "must be " + w.as
			}
			to.Set(reflect.Append(to, one))
		}
		return ""
	}
	if text, ok := v.(string); ok && w.parse != nil {
		parsed, err := w.parse(text)
		if err != nil {
			return fmt.Sprintf("must be %s, not %q", w.as, text)
		}
		v = parsed
	}
	switch got := reflect.ValueOf(v); {
	case got.Type() == to.Type():
		to.Set(got)
	case got.Kind() == reflect.Int64 && (to.Kind() == reflect.Int || to.Kind() == reflect.Float64):
		to.Set(got.Convert(to.Type()))
	default:
		return "must be " + w.as
	}
	return ""
}

// maxDuration and maxSize limit durations and byte counts that have no other bound, so that
// sums and products of them cannot overflow.
const (
	maxDuration = 24 * time.Hour
	maxSize     = 1 << 44
)

// fault returns what is wrong with the value according to its declaration, or "".
func (k key) fault() string {
	switch v := k.value.Interface().(type) {
	case string:
		if words, ok := k.tag.Lookup("oneof"); ok {
			return notOneOf(v, strings.Split(words, ","))
		}
	case time.Duration:
		least, most := k.bounds(1, int64(maxDuration))
		switch {
		case int64(v) >= least && int64(v) <= most:
		case least == 0:
			return fmt.Sprintf("must be from 0 to %v, not %v", time.Duration(most), v)
		default:
			return fmt.Sprintf("must be above 0 and at most %v, not %v", time.Duration(most), v)
		}
	case int64:
		least, most := k.bounds(0, maxSize)
		if zero := v == 0 && k.tag.Get("zero") != ""; !zero && (v < least || v > most) {
			return fmt.Sprintf("must be in [%s, %s], not %s", formatBytes(least), formatBytes(most), formatBytes(v))
		}
	case int:
		if least, most := k.bounds(math.MinInt64, math.MaxInt64); int64(v) < least || int64(v) > most {
			return fmt.Sprintf("must be in [%d, %d], not %d", least, most, v)
		}
	case float64:
		if least, most := k.tag.Get("min"), k.tag.Get("max"); least != "" && !(v >= k.declared(least).Float() && v <= k.declared(most).Float()) {
			return fmt.Sprintf("must be in [%s, %s], not %v", least, most, v)
		}
	}
	return ""
}

// bounds returns the declared bounds, or the given ones where none are declared.
func (k key) bounds(least, most int64) (int64, int64) {
	if text, ok := k.tag.Lookup("min"); ok {
		least = k.declared(text).Int()
	}
	if text, ok := k.tag.Lookup("max"); ok {
		most = k.declared(text).Int()
	}
	return least, most
}

// notOneOf returns a fault unless v is one of words.
func notOneOf(v string, words []string) (fault string) {
	if slices.Contains(words, v) {
		return ""
	}
	return fmt.Sprintf("must be one of %s, not %q", strings.Join(words, ", "), v)
}

// Guess suggests the known key that an unknown one may have meant: one with a similar name
// in the same table, or with the same name in another. It returns "" if there is none.
func Guess(table, name string, known []string) string {
	best, within := "", max(1, len(name)/3)+1
	for _, k := range known {
		at := strings.LastIndexByte(k, '.') + 1
		switch d := levenshtein.Distance(name, k[at:], nil); {
		case k[:at] == table && d < within:
			best, within = k[at:], d
		case d == 0 && best == "":
			best = k
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf("; did you mean %s?", best)
}

// format returns a value in TOML.
func format(v reflect.Value) string {
	switch v := v.Interface().(type) {
	case string:
		return quote(v)
	case time.Duration:
		return quote(formatDuration(v))
	case int64:
		return quote(formatBytes(v))
	}
	if v.Kind() != reflect.Slice {
		return fmt.Sprint(v)
	}
	items := make([]string, v.Len())
	for i := range items {
		items[i] = format(v.Index(i))
	}
	return "[" + strings.Join(items, ", ") + "]"
}

// quote returns a basic string of TOML. Its escapes are those of JSON, except that DEL must
// be escaped as well.
func quote(s string) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(s) // a string can always be encoded
	return strings.ReplaceAll(strings.TrimSuffix(b.String(), "\n"), "\x7f", `\u007f`)
}

// formatDuration writes a duration without the zeros at its end: "2m", not "2m0s".
func formatDuration(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// byteUnits are the units of byte counts, the largest first.
var byteUnits = []struct {
	name  string
	bytes int64
}{{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"B", 1}}

// parseBytes parses a byte count such as "64MiB".
func parseBytes(s string) (int64, error) {
	for _, u := range byteUnits {
		digits, ok := strings.CutSuffix(s, u.name)
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSpace(digits), 10, 64)
		if err != nil || n < 0 || n > (1<<62)/u.bytes {
			break
		}
		return n * u.bytes, nil
	}
	return 0, strconv.ErrSyntax
}

// formatBytes formats a byte count in the largest unit that needs no fraction.
func formatBytes(n int64) string {
	for _, u := range byteUnits {
		if n != 0 && n%u.bytes == 0 {
			return strconv.FormatInt(n/u.bytes, 10) + u.name
		}
	}
	return "0B"
}
