package http

import (
	"encoding/binary"
	"encoding/json"
	"math"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/models"
)

func le64(values ...uint64) (b []byte) {
	for _, v := range values {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	return b
}

func le32(values ...uint32) (b []byte) {
	for _, v := range values {
		b = binary.LittleEndian.AppendUint32(b, v)
	}
	return b
}

func TestAppendElements(t *testing.T) {
	f64, f32 := math.Float64bits, math.Float32bits
	nan32 := f32(float32(math.NaN()))
	for name, tt := range map[string]struct {
		typ  models.DataType
		data []byte
		want string // "" if JSON cannot carry it
	}{
		"no elements":       {models.Float32, nil, "["},
		"FP32":              {models.Float32, le32(f32(0.1), f32(-0), f32(16777216), f32(math.MaxFloat32)), "[0.1,0,1.6777216e+07,3.4028235e+38"},
		"FP64":              {models.Float64, le64(f64(0.1), f64(1e300), f64(math.SmallestNonzeroFloat64)), "[0.1,1e+300,5e-324"},
		"BOOL":              {models.Bool, []byte{0, 1, 2}, "[false,true,true"},
		"INT8":              {models.Int8, []byte{0x80, 0xff, 0x7f}, "[-128,-1,127"},
		"INT16":             {models.Int16, []byte{0, 0x80, 0xfe, 0xff}, "[-32768,-2"},
		"INT32":             {models.Int32, le32(1<<31, 5), "[-2147483648,5"},
		"INT64":             {models.Int64, le64(1<<63, math.MaxInt64), "[-9223372036854775808,9223372036854775807"},
		"UINT8":             {models.Uint8, []byte{0, 255}, "[0,255"},
		"UINT16":            {models.Uint16, []byte{0xff, 0xff}, "[65535"},
		"UINT32":            {models.Uint32, le32(math.MaxUint32), "[4294967295"},
		"UINT64":            {models.Uint64, le64(math.MaxUint64), "[18446744073709551615"},
		"FP32 NaN":          {models.Float32, le32(f32(1), nan32), ""},
		"FP32 infinite":     {models.Float32, le32(f32(float32(math.Inf(-1)))), ""},
		"FP64 NaN":          {models.Float64, le64(f64(math.NaN())), ""},
		"FP64 infinite":     {models.Float64, le64(f64(math.Inf(1))), ""},
		"FP16 has no form":  {models.Float16, []byte{0, 0}, ""},
		"BF16 has no form":  {models.BFloat16, []byte{0, 0}, ""},
		"BYTES":             {models.String, append(le32(1), "a\x00\x00\x00\x00"...), `["a",""`},
		"BYTES of no UTF-8": {models.String, append(le32(1), 0xff), ""},
		"BYTES without end": {models.String, append(le32(5), "abcd"...), ""},
		"BYTES cut short":   {models.String, []byte{1, 0, 0}, ""},
		"BYTES of 4 GiB":    {models.String, append(le32(math.MaxUint32), 'a'), ""},
	} {
		got, ok := appendElements([]byte("["), tt.typ, tt.data)
		if ok != (tt.want != "") || ok && string(got) != tt.want {
			t.Errorf("%s: %t, %s, want %s", name, ok, got, tt.want)
		}
		if ok && !json.Valid(append(got, ']')) {
			t.Errorf("%s: no JSON: %s", name, got)
		}
	}
}

// A query whose reply does not fit the model is answered, with an error.
func TestReplyOfAnotherModel(t *testing.T) {
	s := serve(t, testLimits())
	s.Hold.Store(true)
	c := s.sent(rawRequest("POST", "/v2/models/simple/infer", nil, []byte(simple(""))))
	s.WaitHeld(1)
	s.AnswerHeld(func(c *query.Call) query.Reply {
		r := s.Run(c)
		r.Outputs = r.Outputs[:1]
		return r
	})
	a := s.read(c)
	if _, reason := a.failure(t); a.status != http.StatusInternalServerError || reason != query.ReasonInternal {
		t.Errorf("%d %s", a.status, a.body)
	}
	s.Hold.Store(false)
	s.live()
}

// An output of a type without a JSON form is refused before the model runs,
// unless the client asks for it as binary or does not ask for it.
func TestTypesWithoutJSON(t *testing.T) {
	s := serve(t, testLimits())
	binaryIn := `{"inputs":[{"name":"X","shape":[1,2],"datatype":"FP16","parameters":{"binary_data_size":4}}]%s}` + "\x01\x02\x03\x04"
	for more, status := range map[string]int{
		``: http.StatusBadRequest,
		`,"parameters":{"binary_data_output":true}`:                                                             http.StatusOK,
		`,"outputs":[{"name":"Y","parameters":{"binary_data":true}}]`:                                           http.StatusOK,
		`,"outputs":[{"name":"Y"}]`:                                                                             http.StatusBadRequest,
		`,"outputs":[{"name":"Y","parameters":{"binary_data":false}}],"parameters":{"binary_data_output":true}`: http.StatusBadRequest,
	} {
		text := strings.Replace(binaryIn, "%s", more, 1)
		header := map[string]string{"Inference-Header-Content-Length": strconv.Itoa(len(text) - 4)}
		a := s.exchange(rawRequest("POST", "/v2/models/echo_FP16/infer", header, []byte(text)))
		if a.status != status || status == http.StatusOK && !strings.HasSuffix(string(a.body), "\x01\x02\x03\x04") {
			t.Errorf("%s: %d %q", more, a.status, a.body)
		}
	}
}
