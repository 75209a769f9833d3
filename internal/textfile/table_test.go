package textfile

import (
	"bytes"
	"encoding/csv"
	"errors"
	"io"
	"runtime"
	"slices"
	"strings"
	"testing"
)

var errUse, errMany = errors.New("unusable"), errors.New("too many")

func openTable(r io.Reader) *Table {
	return newTable(&Sheet{Unusable: errUse, TooLarge: errMany}, r, "x.csv")
}

// rowsOf reads a table to its end.
func rowsOf(t *Table) (rows [][]string, err error) {
	for t.next() {
		rows = append(rows, slices.Clone(t.Fields))
	}
	return rows, t.err
}

func TestTable(t *testing.T) {
	want := [][]string{{"a", "b"}, {"1", "x, y"}, {"2"}}
	for name, text := range map[string]string{
		"as it is":    "a,b\n1,\"x, y\"\n2\n",
		"no last end": "a,b\n1,\"x, y\"\n2",
		"CRLF":        "a,b\r\n1,\"x, y\"\r\n2\r\n",
		"mark":        "\ufeffa,b\n1,\"x, y\"\n2\n",
		"blank lines": "\n  \na,b\n\n1,\"x, y\"\n2\n \n",
		"spaces":      " a ,b\n1 ,\"x, y\"\n\n\n 2\n",
	} {
		rows, err := rowsOf(openTable(strings.NewReader(text)))
		if err != nil || !slices.EqualFunc(rows, want, slices.Equal) {
			t.Errorf("%s: %q, %v", name, rows, err)
		}
	}
}

func TestTableFaults(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want error
		line int
		says string
	}{
		"quote":      {"a\n\nb\"c\n", errSyntax, 3, "into quotes"},
		"open quote": {"a\n\"b\nc", errSyntax, 3, "quote"},
		"gzip":       {"\x1f\x8b\x08\x00", errNotText, 0, "compressed with gzip; unpack it"},
		"zip":        {"PK\x03\x04rest", errNotText, 0, "spreadsheet"},
		"UTF-16":     {"\xff\xfea\x00,\x00", errNotText, 0, "save it as UTF-8"},
		"Latin 1":    {"Z\xfcrich\n", errNotText, 0, "save it as UTF-8"},
		"zeros":      {"a,b\x00\n", errNotText, 0, "byte 4 is zero"},
		"large":      {"a\n" + strings.Repeat("a", 2<<20), errTooLarge, 2, "more than 1048576 bytes and no row"},
	} {
		_, err := rowsOf(openTable(strings.NewReader(c.text)))
		var fault *Fault
		kind := errUse
		if c.want == errTooLarge {
			kind = errMany
		}
		if !errors.As(err, &fault) || !errors.Is(err, kind) || !strings.Contains(err.Error(), c.says) || fault.Line != c.line || !errors.Is(err, c.want) {
			t.Errorf("%s: %v; want line %d, %q", name, err, c.line, c.says)
		}
	}
}

type endless string

func (e endless) Read(p []byte) (int, error) {
	n := 0
	for n < len(p) {
		n += copy(p[n:], e)
	}
	return n, nil
}

// Lines that do not end are given up before they take much memory.
func TestTableBoundsMemory(t *testing.T) {
	for name, filler := range map[string]endless{"letters": "a", "commas": ",", "empty lines": "\n", "a quoted field": "b\n"} {
		head := "x\n"
		if name == "a quoted field" {
			head += `"`
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		rows, err := rowsOf(openTable(io.MultiReader(strings.NewReader(head), filler)))
		runtime.ReadMemStats(&after)
		if !errors.Is(err, errTooLarge) || len(rows) != 1 || !strings.Contains(err.Error(), "x.csv:2: ") || !strings.Contains(err.Error(), "no row") {
			t.Errorf("%s: %d rows: %v", name, len(rows), err)
		}
		if took := after.TotalAlloc - before.TotalAlloc; took > 256<<20 {
			t.Errorf("%s: allocated %d bytes", name, took)
		}
	}
}

func TestTablePassesOnErrors(t *testing.T) {
	table := openTable(io.MultiReader(strings.NewReader("a\n"), broken{}))
	if _, err := rowsOf(table); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("got %v", err)
	}
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// What is read is what was written.
func FuzzTable(f *testing.F) {
	f.Add([]byte("a,b\n1,2\n"))
	f.Add([]byte("\ufeff\"a\nb\",\"\"\"\"\r\n"))
	f.Add([]byte{0xff, 0xfe, 0})
	f.Add([]byte("0,0\n "))
	f.Fuzz(func(t *testing.T, data []byte) {
		table := openTable(bytes.NewReader(data))
		rows, err := rowsOf(table)
		if err != nil {
			if !errors.Is(err, errSyntax) && !errors.Is(err, errNotText) && !errors.Is(err, errTooLarge) {
				t.Fatalf("an error of no kind: %v", err)
			}
			return
		}
		var text bytes.Buffer
		w := csv.NewWriter(&text)
		if err := w.WriteAll(rows); err != nil {
			t.Fatal(err)
		}
		if bytes.HasPrefix(text.Bytes(), []byte(mark)) || checkText(text.Bytes()[:min(text.Len(), 6)], true) != nil {
			return // a second mark, or what only now looks like another kind of file
		}
		again, err := rowsOf(openTable(&text))
		if err != nil || !slices.EqualFunc(rows, again, slices.Equal) {
			t.Fatalf("%q became %q, %v", rows, again, err)
		}
	})
}
