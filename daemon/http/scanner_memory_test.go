package http

import (
	"runtime"
	"strings"
	"testing"

	"github.com/overlapd/overlapd/daemon/query"
)

// What a request says, however long, takes no memory but its body's: that is
// what is accounted.
func TestLongWordsTakeNoMemory(t *testing.T) {
	const length = 2 << 20 // twice as much as may be taken
	long := `"\n` + strings.Repeat("a", length) + `"`
	escapes := `"` + strings.Repeat(`\n`, length/2) + `"`
	digits := strings.Repeat("7", length)
	simple := newFake(t).Service([]byte("simple"))
	for name, head := range map[string]string{
		"key":                    `{` + long + `:1,` + simpleInputs + `}`,
		"key of escapes":         `{` + escapes + `:1,` + simpleInputs + `}`,
		"value":                  `{"x":` + long + `,` + simpleInputs + `}`,
		"value of escapes":       `{"x":` + escapes + `,` + simpleInputs + `}`,
		"key of a value":         `{"x":{` + long + `:1},` + simpleInputs + `}`,
		"parameter":              `{"parameters":{"x":` + long + `},` + simpleInputs + `}`,
		"name of a parameter":    `{"parameters":{` + long + `:1},` + simpleInputs + `}`,
		"id":                     `{"id":` + long + `,` + simpleInputs + `}`,
		"name of an input":       `{"inputs":[{"name":` + long + `}]}`,
		"datatype":               `{"inputs":[{"datatype":` + long + `}]}`,
		"name of an output":      `{"outputs":[{"name":` + long + `}]}`,
		"timeout":                `{"parameters":{"timeout":` + digits + `},` + simpleInputs + `}`,
		"dimension":              `{"inputs":[{"shape":[` + digits + `]}]}`,
		"number that is unknown": `{"x":-` + digits + `.` + digits + `e` + digits + `}`,
	} {
		body := []byte(head)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_ = new(decoder).decode(query.NewCall(simple), body, len(body)) // some are wrong besides
		runtime.ReadMemStats(&after)
		if took := after.TotalAlloc - before.TotalAlloc; took > 1<<20 {
			t.Errorf("%s: %d KiB are taken for %d", name, took>>10, length>>10)
		}
	}
}

func TestLongNumbersOfTensors(t *testing.T) {
	s := newFake(t).Service([]byte("echo_FP64"))
	for digits, want := range map[int]string{100: "", 1000: "", maxNumber - 2: "", maxNumber - 1: "a number of more than", 1 << 20: "a number of more than"} {
		body := []byte(`{"inputs":[{"name":"X","datatype":"FP64","shape":[1,1],"data":[0.` + strings.Repeat("3", digits) + `]}]}`)
		c := query.NewCall(s)
		if err := new(decoder).decode(c, body, len(body)); err != nil {
			t.Fatal(err)
		}
		_, err := writeInput(make([]byte, 8), &c.Given[0])
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Message, want) {
			t.Errorf("%d digits: %v", digits, err)
		}
	}
}

// What is thrown away is checked as what is read.
func TestPassedStrings(t *testing.T) {
	for text, want := range map[string]bool{
		`"a"`: true, `""`: true, `"é\u00e9\ud83d\ude00"`: true, `"\\"`: true, `"\""`: true, `"a\/b"`: true,
		`"a`: false, `"\"`: false, `"\x"`: false, `"\u12"`: false, `"\ud83d"`: false, "\"\x01\"": false, "\"\xff\"": false,
		"\"\xc3\\n\xa9\"": false,
	} {
		passed, read := scanner{b: []byte(text)}, scanner{b: []byte(text)}
		_, failed := read.str(nil)
		_, _, err := passed.pass()
		if (err == nil) != want || (failed == nil) != want {
			t.Errorf("%q: passed with %v, read with %v", text, err, failed)
		} else if want && passed.i != read.i {
			t.Errorf("%q: passed up to %d, read up to %d", text, passed.i, read.i)
		}
	}
}
