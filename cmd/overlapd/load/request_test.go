package load

import (
	"bufio"
	"bytes"
	"encoding/json"
	"net/url"
	"slices"
	"strconv"
	"testing"

	"github.com/valyala/fasthttp"
)

func someRequests(t *testing.T, set func(*Options)) []*request {
	t.Helper()
	o := DefaultOptions()
	o.Inputs = 3
	set(&o)
	var inputs []tensor
	for name, datatype := range map[string]string{"x": "FP32", "mask": "INT64"} {
		in, err := newTensor(name, datatype, []int64{2, 3})
		if err != nil {
			t.Fatal(err)
		}
		inputs = append(inputs, in)
	}
	slices.SortFunc(inputs, func(a, b tensor) int { return -bytes.Compare([]byte(a.name), []byte(b.name)) })
	all, err := newRequests(&o, &url.URL{Scheme: "http", Host: "127.0.0.1:8000"}, "a b/c", inputs, 0)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func parse(t *testing.T, r *request) *fasthttp.Request {
	t.Helper()
	var q fasthttp.Request
	if err := q.Read(bufio.NewReader(bytes.NewReader(r.wire))); err != nil {
		t.Fatal(err)
	}
	return &q
}

func TestBinaryRequest(t *testing.T) {
	all := someRequests(t, func(o *Options) { o.QueryTimeout, o.Priority = 2500000, 3 })
	q := parse(t, all[0])
	if got := string(q.Header.RequestURI()); got != "/v2/models/a%20b%2Fc/infer" || !q.Header.IsPost() {
		t.Errorf("the request is %s %s, want a POST of the escaped model", q.Header.Method(), got)
	}
	n, err := strconv.Atoi(string(q.Header.Peek("Inference-Header-Content-Length")))
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"parameters":{"binary_data_output":true,"priority":3,"timeout":2500},"inputs":[` +
		`{"name":"x","datatype":"FP32","shape":[2,3],"parameters":{"binary_data_size":24}},` +
		`{"name":"mask","datatype":"INT64","shape":[2,3],"parameters":{"binary_data_size":48}}]}`
	if got := string(q.Body()[:n]); got != want {
		t.Errorf("header\n%s\nwant\n%s", got, want)
	}
	if got := len(q.Body()) - n; got != 24+48 {
		t.Errorf("%d bytes of tensors, want 72", got)
	}
}

func TestJSONRequest(t *testing.T) {
	q := parse(t, someRequests(t, func(o *Options) { o.JSONTensors = true })[0])
	if h := q.Header.Peek("Inference-Header-Content-Length"); h != nil {
		t.Errorf("a JSON request says its header has %s bytes", h)
	}
	var body struct{ Inputs []struct{ Data []float64 } }
	if err := json.Unmarshal(q.Body(), &body); err != nil {
		t.Fatal(err)
	}
	if len(body.Inputs) != 2 || len(body.Inputs[0].Data) != 6 || !slices.Equal(body.Inputs[1].Data, []float64{1, 1, 1, 1, 1, 1}) {
		t.Errorf("inputs %+v", body.Inputs)
	}
}
