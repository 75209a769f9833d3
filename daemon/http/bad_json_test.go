package http

import (
	"encoding/binary"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"testing"

	"github.com/overlapd/overlapd/daemon/query"
)

// badRise is how much one bad request may allocate, besides a few times its
// own length.
const badRise = 4 << 20

// bounded fails the test if f allocates more than a request of that length
// may.
func bounded(t *testing.T, length int, f func()) {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	if rise := after.TotalAlloc - before.TotalAlloc; rise > uint64(badRise+8*length) {
		t.Errorf("a request of %d bytes allocated %d", length, rise)
	}
}

// echo returns a request to a service that returns what it gets.
func echo(typ, shape, data string) string {
	return fmt.Sprintf(`{"inputs":[{"name":"X","datatype":%q,"shape":%s,"data":%s}]}`, typ, shape, data)
}

func repeat(item string, n int) string { return "[" + strings.Repeat(item+",", n-1) + item + "]" }

const simpleInputs = `"inputs":[` +
	`{"name":"INPUT0","datatype":"INT32","shape":[1,16],"data":[0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15]},` +
	`{"name":"INPUT1","datatype":"INT32","shape":[1,16],"data":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]}]`

func simple(rest string) string { return `{` + rest + simpleInputs + `}` }

func TestBadJSON(t *testing.T) {
	s := serve(t, testLimits())
	fp32 := func(shape, data string) string { return echo("FP32", shape, data) }
	for _, tt := range []struct {
		name, service, body string
		want                string // part of the message
	}{
		{"empty", "echo_FP32", ``, "must be an object"},
		{"not an object", "echo_FP32", `[]`, "must be an object"},
		{"null", "echo_FP32", `null`, "must be an object"},
		{"cut short", "echo_FP32", `{"inputs":[`, "an input must be an object"},
		{"goes on", "echo_FP32", fp32("[1,1]", "[1]") + "x", "after its end"},
		{"trailing comma", "echo_FP32", `{"inputs":[{"name":"X",}]}`, "nothing after the comma"},
		{"comment", "echo_FP32", `{/**/}`, "expected a string"},
		{"single quotes", "echo_FP32", `{'id':1}`, "expected a string"},
		{"unknown member is checked", "echo_FP32", `{"x":{"y":[1,tru]}}`, "expected a number"},
		{"lone surrogate", "echo_FP32", `{"id":"\ud800"}`, "surrogate"},
		{"unknown escape", "echo_FP32", `{"id":"\x"}`, "escape"},
		{"invalid UTF-8", "echo_FP32", "{\"id\":\"\xff\"}", "UTF-8"},
		{"control character", "echo_FP32", "{\"id\":\"\n\"}", "control character"},

		{"16: 2^4 × (2^60+2) wraps", "echo_FP32", fp32("[16,1152921504606846978]", "[1]"), "overflow"},
		{"16: 2^2 × (2^60+2) wraps", "echo_FP32", fp32("[4,1152921504606846978]", "[1]"), "overflow"},
		{"16: bytes wrap", "echo_FP64", echo("FP64", "[1,2305843009213693952]", "[1]"), "overflow"},
		{"16: huge and data short", "echo_FP32", fp32("[1,1099511627776]", "[1]"), "data has fewer"},
		{"17: negative", "echo_FP32", fp32("[1,-1]", "[1]"), "at least 1"},
		{"17: zero", "echo_FP32", fp32("[1,0]", "[]"), "at least 1"},
		{"17: float", "echo_FP32", fp32("[1,1.0]", "[1]"), "integer"},
		{"17: string", "echo_FP32", fp32(`[1,"1"]`, "[1]"), "integer"},
		{"17: rank 1000", "echo_FP32", fp32(repeat("1", 1000), "[1]"), "dimensions"},
		{"17: rank 3", "echo_FP32", fp32("[1,1,1]", "[1]"), "rank 3"},
		{"17: not an array", "echo_FP32", fp32("1", "[1]"), "array"},
		{"18: too few", "echo_FP32", fp32("[1,4]", "[1,2,3]"), "elements"},
		{"18: too few, long", "echo_FP32", fp32("[1,3]", "[1.25,2.125]"), "3 elements"},
		{"18: too many", "echo_FP32", fp32("[1,2]", "[1,2,3]"), "2 elements"},
		{"18: ragged", "echo_FP32", fp32("[2,2]", "[[1,2],[3]]"), "2 elements"},
		{"18: ragged, sum right", "echo_FP32", fp32("[2,2]", "[[1,2,3],[4]]"), "2 elements"},
		{"18: too many rows", "echo_FP32", fp32("[1,4]", "[[1,2],[3,4]]"), "4 elements"},
		{"18: too deep", "echo_FP32", fp32("[1,2]", "[[[1,2]]]"), "expected a number"},
		{"18: mixed depth", "echo_FP32", fp32("[2,2]", "[[1,2],3,4]"), "expected"},
		{"18: brackets do not match", "echo_FP32", fp32("[1,2]", "[1,2}"), ""},
		{"19: depth 120 in data", "echo_FP32", fp32("[1,1]", strings.Repeat("[", 120)+strings.Repeat("]", 120)), "nested"},
		{"19: depth 120 elsewhere", "echo_FP32", `{"x":` + strings.Repeat("[", 120) + strings.Repeat("]", 120) + `}`, "nested"},
		{"19: depth 250,000", "echo_FP32", `{"x":` + strings.Repeat("[", 250_000), "nested"},
		{"19: depth 250,000, objects", "echo_FP32", strings.Repeat(`{"x":`, 250_000), "nested"},
		{"22: id twice", "simple", simple(`"id":"a","id":"b",`), "twice"},
		{"22: id twice, escaped", "simple", simple(`"id":"a","\u0069d":"b",`), "twice"},
		{"22: inputs twice", "simple", `{` + simpleInputs + `,` + simpleInputs + `}`, "twice"},
		{"22: input twice", "echo_FP32", `{"inputs":[` + repeat(`{"name":"X","datatype":"FP32","shape":[1,1],"data":[1]}`, 2)[1:] + `}`, "twice"},
		{"22: shape twice", "echo_FP32", `{"inputs":[{"name":"X","shape":[1],"shape":[1]}]}`, "twice"},
		{"22: output twice", "echo_FP32", `{"outputs":` + repeat(`{"name":"Y"}`, 2) + `}`, "more outputs"},
		{"22: 1e5 outputs", "echo_FP32", `{"outputs":` + repeat(`{"name":"Y"}`, 100_000) + `}`, "more outputs"},
		{"22: 1e5 inputs", "echo_FP32", `{"inputs":` + repeat(`{"name":"Z"}`, 100_000) + `}`, "no input"},
		{"22: 1e5 parameters", "simple", simple(`"parameters":{"a":1` + strings.Repeat(`,"a":1`, 100_000) + `},`), "parameters"},
		{"23: missing input", "simple", `{"inputs":[{"name":"INPUT0","datatype":"INT32","shape":[1,16],"data":` + repeat("1", 16) + `}]}`, `"INPUT1" is missing`},
		{"23: no inputs", "simple", `{}`, "missing"},
		{"23: extra input", "echo_FP32", `{"inputs":[{"name":"other"}]}`, "no input"},
		{"23: unknown output", "echo_FP32", `{"outputs":[{"name":"other"}]}`, "no output"},
		{"23: wrong type", "echo_FP32", echo("FP64", "[1,1]", "[1]"), "the model has FP32"},
		{"23: unknown type", "echo_FP32", echo("FLOAT", "[1,1]", "[1]"), "unknown datatype"},
		{"23: nameless", "echo_FP32", `{"inputs":[{"datatype":"FP32","shape":[1,1],"data":[1]}]}`, `no "name"`},
		{"23: shapeless", "echo_FP32", `{"inputs":[{"name":"X","datatype":"FP32","data":[1]}]}`, `no "shape"`},
		{"23: typeless", "echo_FP32", `{"inputs":[{"name":"X","shape":[1,1],"data":[1]}]}`, `no "datatype"`},
		{"23: no data", "echo_FP32", `{"inputs":[{"name":"X","datatype":"FP32","shape":[1,1]}]}`, "neither data"},
		{"23: data no array", "echo_FP32", fp32("[1,1]", "1"), "must be an array"},
		{"23: FP16 in", "echo_FP16", echo("FP16", "[1,1]", "[1]"), "no JSON form"},
		{"23: BF16 in", "echo_BF16", echo("BF16", "[1,1]", "[1]"), "no JSON form"},
		{"23: NaN in", "echo_FP32", fp32("[1,1]", "[NaN]"), "expected a number"},
		{"23: Infinity in", "echo_FP32", fp32("[1,2]", "[-Infinity]"), ""},
		{"23: null in", "echo_FP32", fp32("[1,1]", "[null]"), "expected a number"},
		{"23: string for number", "echo_FP32", fp32("[1,1]", `["1"]`), "expected a number"},
		{"23: true for number", "echo_INT8", echo("INT8", "[1,1]", `[true]`), "expected a number"},
		{"23: number for string", "echo_BYTES", echo("BYTES", "[1,1]", `[123]`), "expected a string"},
		{"23: 2 for bool", "echo_BOOL", echo("BOOL", "[1,1]", `[2]`), "expected true"},
		{"23: leading zero", "echo_FP32", fp32("[1,1]", "[01]"), "expected"},
		{"23: plus", "echo_FP32", fp32("[1,1]", "[+1]"), "expected a number"},
		{"23: hexadecimal", "echo_INT32", echo("INT32", "[1,1]", "[0x1]"), "expected"},
		{"23: underscore", "echo_INT32", echo("INT32", "[1,1]", "[1_0]"), "expected"},
		{"23: point", "echo_FP32", fp32("[1,1]", "[1.]"), "point"},
		{"23: exponent", "echo_FP32", fp32("[1,1]", "[1e]"), "exponent"},
		{"24: timeout -1", "simple", simple(`"parameters":{"timeout":-1},`), "timeout"},
		{"24: timeout 2^63", "simple", simple(`"parameters":{"timeout":9223372036854775808},`), "timeout"},
		{"24: timeout 2^63-1", "simple", simple(`"parameters":{"timeout":9223372036854775807},`), "timeout"},
		{"24: timeout string", "simple", simple(`"parameters":{"timeout":"5"},`), "timeout"},
		{"24: timeout 1.5", "simple", simple(`"parameters":{"timeout":1.5},`), "timeout"},
		{"24: priority -1", "simple", simple(`"parameters":{"priority":-1},`), "priority"},
		{"24: priority huge", "simple", simple(`"parameters":{"priority":4294967296},`), "priority"},
		{"24: triton_", "simple", simple(`"parameters":{"triton_enable_empty_final_response":true},`), "reserved"},
		{"24: sequence_", "simple", simple(`"parameters":{"sequence_id":1},`), "reserved"},
		{"24: headers", "simple", simple(`"parameters":{"headers":"x"},`), "reserved"},
		{"24: not an object", "simple", simple(`"parameters":[],`), "must be an object"},
		{"24: binary_data_output 1", "simple", simple(`"parameters":{"binary_data_output":1},`), "true or false"},
		{"24: classification", "simple", simple(`"outputs":[{"name":"OUTPUT0","parameters":{"classification":3}}],`), "classification"},
		{"25: FP32 1e999", "echo_FP32", fp32("[1,1]", "[1e999]"), "out of the range"},
		{"25: FP32 3.5e38", "echo_FP32", fp32("[1,1]", "[3.5e38]"), "out of the range"},
		{"25: FP64 1e999", "echo_FP64", echo("FP64", "[1,1]", "[-1e999]"), "out of the range"},
		{"25: INT8 128", "echo_INT8", echo("INT8", "[1,1]", "[128]"), "out of the range"},
		{"25: INT64 2^63", "echo_INT64", echo("INT64", "[1,1]", "[9223372036854775808]"), "out of the range"},
		{"25: UINT8 -1", "echo_UINT8", echo("UINT8", "[1,1]", "[-1]"), "out of the range"},
		{"25: UINT16 65536", "echo_UINT16", echo("UINT16", "[1,1]", "[65536]"), "out of the range"},
		{"25: INT32 1.5", "echo_INT32", echo("INT32", "[1,1]", "[1.5]"), "not an integer"},
		{"25: INT32 1e-2", "echo_INT32", echo("INT32", "[1,1]", "[1e-2]"), "not an integer"},
		{"25: INT32 1e10", "echo_INT32", echo("INT32", "[1,1]", "[1e10]"), "out of the range"},
		{"25: INT32 1e400", "echo_INT32", echo("INT32", "[1,1]", "[1e400]"), "exceeds"},
		{"25: INT64 1e16", "echo_INT64", echo("INT64", "[1,1]", "[1e16]"), "exceeds"},
		{"25: UINT8 -1.0", "echo_UINT8", echo("UINT8", "[1,1]", "[-1.0]"), "out of the range"},
		{"batch over the limit", "echo_FP32", fp32("[9,1]", repeat("1", 9)), "batch size"},
		{"batches differ", "simple", strings.Replace(simple(""), `"INT32","shape":[1,16]`, `"INT32","shape":[2,8]`, 1), "8 in dimension 1"},
		{"id not printable", "simple", simple(`"id":"a\r\nb",`), "printable"},
		{"id too long", "simple", simple(`"id":"` + strings.Repeat("a", query.MaxIDBytes+1) + `",`), "limit"},
		{"id a number", "simple", simple(`"id":1,`), "expected a string"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s.t = t
			bounded(t, len(tt.body), func() {
				a := s.infer(tt.service, tt.body)
				if a.status != http.StatusBadRequest {
					t.Errorf("status %d, %s", a.status, a.body)
				}
				message, reason := a.failure(t)
				if !strings.Contains(message, tt.want) || reason != query.ReasonInvalid {
					t.Errorf("%s: %q, want %q in it", reason, message, tt.want)
				}
			})
			s.live()
		})
	}
	s.t = t
}

// binaryRequest returns a request whose JSON is followed by data.
func binaryRequest(service, head string, data []byte) []byte {
	return rawRequest("POST", "/v2/models/"+service+"/infer",
		map[string]string{headerLength: fmt.Sprint(len(head))}, append([]byte(head), data...))
}

func binaryEcho(typ, shape string, size any) string {
	return fmt.Sprintf(`{"inputs":[{"name":"X","datatype":%q,"shape":%s,"parameters":{"binary_data_size":%v}}]}`, typ, shape, size)
}

func bytesElement(s string) []byte {
	return append(binary.LittleEndian.AppendUint32(nil, uint32(len(s))), s...)
}

func TestBadBinary(t *testing.T) {
	s := serve(t, testLimits())
	two := strings.Replace(simple(""), `"data":[0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15]`, `"parameters":{"binary_data_size":64}`, 1)
	two = strings.Replace(two, `"data":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]`, `"parameters":{"binary_data_size":64}`, 1)
	for _, tt := range []struct {
		name, service, head string
		data                []byte
		want                string
	}{
		{"20: over shape", "echo_FP32", binaryEcho("FP32", "[1,1]", 8), make([]byte, 8), "needs 4"},
		{"20: under shape", "echo_FP32", binaryEcho("FP32", "[1,2]", 4), make([]byte, 4), "needs 8"},
		{"20: over body", "echo_FP32", binaryEcho("FP32", "[1,2]", 8), make([]byte, 4), "exceeds the rest"},
		{"20: negative", "echo_FP32", binaryEcho("FP32", "[1,1]", -4), make([]byte, 4), "negative"},
		{"20: 2^63", "echo_FP32", binaryEcho("FP32", "[1,1]", "9223372036854775808"), make([]byte, 4), "integer"},
		{"20: 2^63-1", "echo_FP32", binaryEcho("FP32", "[1,1]", "9223372036854775807"), make([]byte, 4), "exceeds"},
		{"20: a string", "echo_FP32", binaryEcho("FP32", "[1,1]", `"4"`), make([]byte, 4), "integer"},
		{"20: sum over body", "simple", two, make([]byte, 100), "exceeds"},
		{"20: bytes left", "simple", two, make([]byte, 130), "follow"},
		{"20: bytes left, no binary", "simple", simple(""), make([]byte, 1), "follow"},
		{"20: both", "echo_FP32", `{"inputs":[{"name":"X","datatype":"FP32","shape":[1,1],"data":[1],"parameters":{"binary_data_size":4}}]}`, make([]byte, 4), "both"},
		{"21: length 0xFFFFFFFF", "echo_BYTES", binaryEcho("BYTES", "[1,1]", 5), []byte{255, 255, 255, 255, 'a'}, "beyond"},
		{"21: half a length", "echo_BYTES", binaryEcho("BYTES", "[1,2]", 6), append(bytesElement(""), 1, 0), "length of element 1"},
		{"21: too few", "echo_BYTES", binaryEcho("BYTES", "[1,2]", 5), bytesElement("a"), "1 elements"},
		{"21: too many", "echo_BYTES", binaryEcho("BYTES", "[1,1]", 10), append(bytesElement("a"), bytesElement("b")...), "2 elements"},
		{"21: none", "echo_BYTES", binaryEcho("BYTES", "[1,1]", 0), nil, "0 elements"},
		{"23: FP16 out as JSON", "echo_FP16", binaryEcho("FP16", "[1,1]", 2), make([]byte, 2), "request binary"},
		{"23: BF16 out as JSON", "echo_BF16", binaryEcho("BF16", "[1,1]", 2), make([]byte, 2), "request binary"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s.t = t
			raw := binaryRequest(tt.service, tt.head, tt.data)
			bounded(t, len(raw), func() {
				a := s.exchange(raw)
				message, _ := a.failure(t)
				if a.status != http.StatusBadRequest || !strings.Contains(message, tt.want) {
					t.Errorf("%d %q, want %q in it", a.status, message, tt.want)
				}
			})
			s.live()
		})
	}
	s.t = t
}

// Invalid UTF-8 and NUL are data like any other in a binary tensor; only JSON
// cannot return the first.
func TestBytesTensor(t *testing.T) {
	s := serve(t, testLimits())
	for _, v := range []string{"", "a\x00b", "\xff\xfe", "ä€𝄞"} {
		head := strings.Replace(binaryEcho("BYTES", "[1,1]", 4+len(v)), "{", `{"parameters":{"binary_data_output":true},`, 1)
		a := s.exchange(binaryRequest("echo_BYTES", head, bytesElement(v)))
		if a.status != http.StatusOK || !strings.HasSuffix(string(a.body), string(bytesElement(v))) {
			t.Errorf("%q binary: %d %q", v, a.status, a.body)
		}
	}
	if a := s.exchange(binaryRequest("echo_BYTES", binaryEcho("BYTES", "[1,1]", 6), bytesElement("\xff\xfe"))); a.status != http.StatusBadRequest {
		t.Errorf("invalid UTF-8 as JSON: %d %s", a.status, a.body)
	} else if _, reason := a.failure(t); reason != query.ReasonNotJSON {
		t.Errorf("reason %q", reason)
	}
	a := s.infer("echo_BYTES", echo("BYTES", "[2,2]", `[["a\u0000\n","\ud834\udd1e"],["","\"\\\/"]]`))
	if want := `"data":["a\u0000\n","𝄞","","\"\\/"]`; !strings.Contains(string(a.body), want) {
		t.Errorf("%s, want %s", a.body, want)
	}
}
