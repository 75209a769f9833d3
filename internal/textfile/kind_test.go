package textfile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var (
	errForeign = errors.New("no test")
	errDamaged = errors.New("damaged test")
	testKind   = Kind[content]{Format: "test/1", MaxBytes: 1 << 16, Foreign: errForeign, Damaged: errDamaged}
	freeKind   = Kind[content]{MaxBytes: 1 << 16, Foreign: errForeign, Damaged: errDamaged}
)

type content struct {
	Format string    `json:"format"`
	Count  int       `json:"count"`
	Seed   uint64    `json:"seed"`
	Values []float32 `json:"values"`
	Inner  inner     `json:"inner"`
}

type inner struct {
	Name string `json:"name"`
	Sure bool   `json:"sure"`
}

const good = `{
	"format": "test/1", "count": 3, "seed": 18446744073709551615,
	"values": [1, 2.5],
	"inner": {"name": "null", "sure": true}
}
`

func goodContent() *content {
	return &content{Format: "test/1", Count: 3, Seed: math.MaxUint64, Values: []float32{1, 2.5}, Inner: inner{Name: "null", Sure: true}}
}

func TestRead(t *testing.T) {
	for name, text := range map[string]string{"as it is": good, "CRLF": strings.ReplaceAll(good, "\n", "\r\n"), "mark": mark + good} {
		c, err := testKind.Read(strings.NewReader(text), "f")
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if diff := cmp.Diff(goodContent(), c); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestReadFaults(t *testing.T) {
	edit := func(old, new string) string {
		if !strings.Contains(good, old) {
			t.Fatalf("there is no %s", old)
		}
		return strings.Replace(good, old, new, 1)
	}
	for name, c := range map[string]struct {
		text string
		want error
		says string
	}{
		"empty":         {" \n", errForeign, "f: no test: it is empty"},
		"list":          {"[1]", errForeign, "f: no test: not a JSON object"},
		"gzip":          {"\x1f\x8b\x08", errForeign, "f: no test: not a JSON object: not plain text: compressed with gzip; unpack it"},
		"zeros":         {"\x00\x00", errForeign, "byte 1 is zero"},
		"other version": {edit("test/1", "test/2"), errForeign, `f: no test: its format is "test/2", want "test/1"`},
		"no format":     {`{"count":1}`, errForeign, `its format is "", want`},
		"format number": {`{"format":1}`, errForeign, `its format is "", want`},
		"truncated":     {good[:60], errDamaged, "f:2: damaged test: truncated after 60 bytes; copy"},
		"syntax":        {edit("2.5", "2.5;"), errDamaged, "f:3: damaged test: byte "},
		"NaN":           {edit("2.5", "NaN"), errDamaged, "f:3: damaged test: byte "},
		"two":           {good + good, errDamaged, "f:6: damaged test: byte "},
		"unknown":       {edit(`"sure"`, `"sore"`), errDamaged, `f:4: damaged test: unknown field "sore"; remove it`},
		"null":          {edit("2.5", "null"), errDamaged, "f:3: damaged test: byte 81: null in place of a value"},
		"fraction":      {edit(": 3", ": 3.5"), errDamaged, "count is number 3.5 and must be a whole number"},
		"negative":      {edit(": 184", ": -184"), errDamaged, "and must be a whole number from 0 to"},
		"too much":      {edit(": 184", ": 9184"), errDamaged, "f:2: damaged test: byte "},
		"float32":       {edit("2.5", "1e39"), errDamaged, "a number that float32 holds"},
		"text":          {edit("[1, 2.5]", `"x"`), errDamaged, "values is string and must be a list"},
		"object":        {edit(`"null"`, `{}`), errDamaged, "inner.name is object and must be text"},
		"not sure":      {edit("true", "1"), errDamaged, "must be true or false"},
		"no object":     {edit(`{"name": "null", "sure": true}`, "[]"), errDamaged, "inner is array and must be an object"},
		"deep":          {`{"format":` + strings.Repeat("[", 20_000), errDamaged, "max depth"},
		"large":         {good + strings.Repeat(" ", 1<<16), errDamaged, "f: damaged test: larger than 65536 bytes"},
	} {
		_, err := testKind.Read(strings.NewReader(c.text), "f")
		var fault *Fault
		if !errors.Is(err, c.want) || !errors.As(err, &fault) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v; want %v, %q", name, err, c.want, c.says)
		}
	}
	if _, err := freeKind.Read(strings.NewReader(`{"format":"any","count":1}`), ""); err != nil {
		t.Errorf("a kind without formats: %v", err)
	}
	if _, err := testKind.Read(broken{}, "f"); err == nil || errors.Is(err, errDamaged) {
		t.Errorf("a reader that fails: %v", err)
	}
}

func TestSurveySkipsStrings(t *testing.T) {
	for text, want := range map[string]int{
		`{"a":1}`:                -1,
		`{"n":"null"}`:           -1,
		`{"\"n":true}`:           -1,
		`{"\\":null}`:            6,
		`[1,null]`:               3,
		`{"nnn":false,"n":null}`: 17,
	} {
		if got, err := survey([]byte(text)); got != want || err != nil {
			t.Errorf("%s: at %d, want %d", text, got, want)
		}
	}
}

func TestWriteFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.json")
	for range 2 { // the second time over the first
		if err := testKind.WriteFile(path, goodContent()); err != nil {
			t.Fatal(err)
		}
	}
	c, err := testKind.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(goodContent(), c); diff != "" {
		t.Error(diff)
	}
	if left, err := os.ReadDir(filepath.Dir(path)); err != nil || len(left) != 1 {
		t.Errorf("the folder holds %v, %v; want the file alone", left, err)
	}
	before, _ := os.ReadFile(path)
	large := goodContent()
	large.Inner.Name = strings.Repeat("x", testKind.MaxBytes)
	if err := testKind.WriteFile(path, large); !errors.Is(err, errDamaged) {
		t.Errorf("a large one: %v", err)
	}
	nan := goodContent()
	nan.Values[0] = float32(math.NaN())
	if err := testKind.WriteFile(path, nan); err == nil {
		t.Error("wrote NaN")
	}
	checked := testKind
	checked.Faults = func(c *content) []error { return slices.Repeat([]error{errForeign}, c.Count+MaxFaults) }
	if err := checked.WriteFile(path, goodContent()); !errors.Is(err, errDamaged) || !strings.Contains(err.Error(), "and 3 more") {
		t.Errorf("one with faults: %v", err)
	}
	if _, err := checked.ReadFile(path); !errors.Is(err, errDamaged) || !strings.Contains(err.Error(), path+": damaged test: no test") {
		t.Errorf("one with faults: %v", err)
	}
	if err := testKind.WriteFile(filepath.Join(path, "below"), c); err == nil {
		t.Error("wrote below a file")
	}
	if after, err := os.ReadFile(path); err != nil || !bytes.Equal(before, after) {
		t.Errorf("the file has changed, %v", err)
	}
	if _, err := testKind.ReadFile(filepath.Dir(path)); !errors.Is(err, errFolder) {
		t.Errorf("a folder: %v", err)
	}
}

// A file takes no more than a few times its bytes in memory, whatever it is full of.
func TestReadBoundsMemory(t *testing.T) {
	const size = 16 << 20
	type large struct {
		Format string    `json:"format"`
		Many   []content `json:"many"`
		Lists  [][]int   `json:"lists"`
		Texts  []string  `json:"texts"`
		Values []int     `json:"values"`
	}
	kind := Kind[large]{MaxBytes: size, Foreign: errForeign, Damaged: errDamaged}
	for field, value := range map[string]string{"many": "{}", "lists": "[]", "texts": `""`, "values": "0"} {
		var text bytes.Buffer
		fmt.Fprintf(&text, `{"format":"","%s":[%s`, field, value)
		for text.Len() < size-8 {
			text.WriteString("," + value)
		}
		text.WriteString("]}")
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := kind.Read(&text, "f")
		runtime.ReadMemStats(&after)
		if !errors.Is(err, errDamaged) || !strings.Contains(err.Error(), "more than") {
			t.Errorf("%s: %v", field, err)
		}
		if took := after.TotalAlloc - before.TotalAlloc; took > 8*size {
			t.Errorf("%s: %d MiB are allocated for a file of %d", field, took>>20, size>>20)
		}
	}
}

// Whatever is read is refused with an error of the kind, or holds after it was
// written what it held before.
func FuzzRead(f *testing.F) {
	f.Add([]byte(good))
	f.Add([]byte(mark + good))
	f.Add([]byte(good[:50]))
	f.Add([]byte(`{"format":"test/1","Count":1,"count":2}`))
	f.Add([]byte(`{"format":"test/1","values":[null]}`))
	f.Add([]byte("\xff\xfe{"))
	f.Add([]byte(`{"format":"test/1","inner":{"name":"\\\",[{"}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := testKind.Read(bytes.NewReader(data), "f")
		if err != nil {
			var fault *Fault
			if !errors.Is(err, errForeign) && !errors.Is(err, errDamaged) || !errors.As(err, &fault) || strings.Contains(err.Error(), "\n") {
				t.Fatalf("an error of no kind: %v", err)
			}
			return
		}
		text, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		// What is left out reads as nil, which is written as null.
		text = bytes.ReplaceAll(text, []byte(`"values":null`), []byte(`"values":[]`))
		again, err := testKind.Read(bytes.NewReader(text), "f")
		if err != nil {
			t.Fatalf("written and not read again: %v", err)
		}
		if len(c.Values) == 0 {
			c.Values, again.Values = nil, nil
		}
		if diff := cmp.Diff(c, again); diff != "" {
			t.Fatal(diff)
		}
	})
}
