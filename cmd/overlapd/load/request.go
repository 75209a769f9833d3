package load

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/url"
	"strconv"
	"sync/atomic"

	"github.com/valyala/fasthttp"
)

// maxRequestsBytes limits what the requests of one service occupy together.
const maxRequestsBytes = 512 << 20

// request is an inference request as it goes over the wire, made once and sent
// many times.
type request struct {
	wire  []byte
	first atomic.Pointer[[]byte] // body of the first answer, if answers are verified
}

// sameAnswer reports whether body equals the first answer to the request.
func (r *request) sameAnswer(body []byte) bool {
	first := r.first.Load()
	if first == nil {
		kept := bytes.Clone(body)
		if r.first.CompareAndSwap(nil, &kept) {
			return true
		}
		first = r.first.Load()
	}
	return bytes.Equal(*first, body)
}

type jsonInput struct {
	Name       string          `json:"name"`
	Datatype   string          `json:"datatype"`
	Shape      []int64         `json:"shape"`
	Parameters map[string]any  `json:"parameters,omitempty"`
	Data       json.RawMessage `json:"data,omitempty"`
}

type jsonRequest struct {
	Parameters map[string]any `json:"parameters,omitempty"`
	Inputs     []jsonInput    `json:"inputs"`
}

// newRequests makes the requests that are sent to a service in turn. There are
// fewer than asked for if they would occupy too much memory.
func newRequests(o *Options, u *url.URL, service string, inputs []tensor, stream uint64) ([]*request, error) {
	var all []*request
	total := 0
	for i := range o.Inputs {
		r := rand.New(rand.NewPCG(o.Seed, stream<<32|uint64(i)))
		body, headerBytes, err := newBody(o, inputs, r)
		if err != nil {
			return nil, err
		}
		req := &request{wire: newWire(u, modelPath(service)+"/infer", o.Authorization, body, headerBytes)}
		total += len(req.wire)
		if i > 0 && total > maxRequestsBytes {
			break
		}
		all = append(all, req)
	}
	return all, nil
}

// newBody returns the body of a request and the length of its JSON part, -1
// if it has no other.
func newBody(o *Options, inputs []tensor, r *rand.Rand) (body []byte, headerBytes int, err error) {
	q := jsonRequest{Parameters: o.parameters(), Inputs: []jsonInput{}}
	var tail []byte
	for i := range inputs {
		t := &inputs[i]
		in := jsonInput{Name: t.name, Datatype: t.elem.Protocol(), Shape: t.shape}
		if in.Shape == nil {
			in.Shape = []int64{}
		}
		value := t.draw(r, o.MaxID)
		if o.JSONTensors {
			in.Data, err = t.appendJSON(nil, value)
		} else {
			before := len(tail)
			tail = t.appendBinary(tail, value)
			in.Parameters = map[string]any{"binary_data_size": len(tail) - before}
		}
		if err != nil {
			return nil, 0, err
		}
		q.Inputs = append(q.Inputs, in)
	}
	body, err = json.Marshal(q)
	if err != nil {
		return nil, 0, fmt.Errorf("load: encode request: %w", err)
	}
	if o.JSONTensors {
		return body, -1, nil
	}
	return append(body, tail...), len(body), nil
}

func (o *Options) parameters() map[string]any {
	p := map[string]any{}
	if !o.JSONTensors {
		p["binary_data_output"] = true
	}
	if o.QueryTimeout > 0 {
		p["timeout"] = o.QueryTimeout.Microseconds()
	}
	if o.Priority > 0 {
		p["priority"] = o.Priority
	}
	return p
}

// newWire returns a whole HTTP request: GET without a body, else POST. The JSON part of
// the body is so many bytes long, all of it if they are -1.
func newWire(u *url.URL, path, authorization string, body []byte, headerBytes int) []byte {
	r := fasthttp.AcquireRequest()
	defer fasthttp.ReleaseRequest(r)
	r.SetRequestURI(path)
	r.Header.SetHost(u.Host)
	r.Header.SetUserAgent("overlapd-bench")
	if authorization != "" {
		r.Header.Set(fasthttp.HeaderAuthorization, authorization)
	}
	if body != nil {
		r.Header.SetMethod(fasthttp.MethodPost)
		r.Header.SetContentType("application/json")
		r.SetBodyRaw(body)
	}
	if headerBytes >= 0 {
		r.Header.SetContentType("application/octet-stream")
		r.Header.Set("Inference-Header-Content-Length", strconv.Itoa(headerBytes))
	}
	var b bytes.Buffer
	if _, err := r.WriteTo(&b); err != nil {
		panic(err) // a buffer takes everything, and both URL and body are set
	}
	return b.Bytes()
}

const serverPath = "/v2"

func modelPath(service string) string { return serverPath + "/models/" + url.PathEscape(service) }
