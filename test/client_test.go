package test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strconv"
	"testing"
	"time"
)

var client = &http.Client{
	Timeout: patience,
	Transport: bearer{&http.Transport{
		MaxIdleConnsPerHost: 64, DisableCompression: true,
		IdleConnTimeout: time.Second,
	}},
}

// bearer sends the token, which a daemon without access.token_file ignores.
type bearer struct{ *http.Transport }

const token = "the-token-of-those-who-may-ask"

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r.Header.Set("Authorization", "Bearer "+token)
	return b.Transport.RoundTrip(r)
}

// tensor is an input or an output, with "data" as JSON numbers.
type tensor struct {
	Name       string         `json:"name"`
	Shape      []int64        `json:"shape"`
	Datatype   string         `json:"datatype"`
	Data       []float64      `json:"data,omitempty"`
	Parameters map[string]any `json:"parameters,omitempty"`
}

// query is an inference request.
type query struct {
	ID         string         `json:"id,omitempty"`
	Parameters map[string]any `json:"parameters,omitempty"`
	Inputs     []tensor       `json:"inputs"`
}

// answer is what came back. Err is set if no answer did.
type answer struct {
	Status  int
	Err     error
	ID      string
	Error   string
	Reason  string
	Retry   string // Retry-After
	Outputs []tensor
}

func (a answer) String() string {
	return fmt.Sprintf("status %d, %s: %s (%v)", a.Status, a.Reason, a.Error, a.Err)
}

func (p *process) url(path string) string { return "http://" + p.address + path }

func (p *process) inferURL(service string) string {
	return p.url("/v2/models/" + service + "/infer")
}

// infer sends a query as JSON.
func (p *process) infer(service string, q query) answer { return p.inferBy(client, service, q) }

// inferBy is infer with a client of one's own.
func (p *process) inferBy(c *http.Client, service string, q query) answer {
	body, err := json.Marshal(q)
	if err != nil {
		return answer{Err: err}
	}
	return p.post(c, service, body, len(body))
}

// inferBinary sends a query with its data, and asks for outputs, in binary.
func (p *process) inferBinary(service string, q query) answer {
	body, head, err := q.binary()
	if err != nil {
		return answer{Err: err}
	}
	return p.post(client, service, body, head)
}

// binary returns a request with its data, and asking for outputs, in binary,
// and how much of it is JSON.
func (q query) binary() (body []byte, head int, err error) {
	var data []byte
	q.Inputs = append([]tensor(nil), q.Inputs...)
	for i := range q.Inputs {
		in := &q.Inputs[i]
		from := len(data)
		data = append(data, in.bytes()...)
		in.Data, in.Parameters = nil, map[string]any{"binary_data_size": len(data) - from}
	}
	parameters := map[string]any{"binary_data_output": true}
	maps.Copy(parameters, q.Parameters)
	q.Parameters = parameters
	text, err := json.Marshal(q)
	return append(text, data...), len(text), err
}

// bytes returns the data of a tensor in binary.
func (t *tensor) bytes() (data []byte) {
	for _, v := range t.Data {
		data = appendElement(data, t.Datatype, v)
	}
	return data
}

func (p *process) post(c *http.Client, service string, body []byte, head int) answer {
	request, err := http.NewRequest("POST", p.inferURL(service), bytes.NewReader(body))
	if err != nil {
		return answer{Err: err}
	}
	if head < len(body) {
		request.Header.Set("Inference-Header-Content-Length", strconv.Itoa(head))
	}
	response, err := c.Do(request)
	if err != nil {
		return answer{Err: err}
	}
	return read(response)
}

func read(response *http.Response) answer {
	defer response.Body.Close()
	a := answer{Status: response.StatusCode, Retry: response.Header.Get("Retry-After")}
	body, err := io.ReadAll(response.Body)
	if err != nil {
		a.Err = err
		return a
	}
	head := len(body)
	if text := response.Header.Get("Inference-Header-Content-Length"); text != "" {
		if head, a.Err = strconv.Atoi(text); a.Err != nil {
			return a
		}
	}
	if a.Err = json.Unmarshal(body[:head], &a); a.Err == nil {
		a.takeBinary(body[head:])
	}
	return a
}

func (a *answer) takeBinary(data []byte) {
	for i := range a.Outputs {
		out := &a.Outputs[i]
		size, ok := out.Parameters["binary_data_size"].(float64)
		if !ok {
			continue
		}
		if int(size) > len(data) {
			a.Err = fmt.Errorf("output %s has %v bytes, the body %d", out.Name, size, len(data))
			return
		}
		out.take(data[:int(size)])
		data = data[int(size):]
	}
	if len(data) > 0 {
		a.Err = fmt.Errorf("%d bytes after the last output", len(data))
	}
}

// take reads the data of an output, of elements of four bytes.
func (t *tensor) take(data []byte) {
	for ; len(data) >= 4; data = data[4:] {
		t.Data = append(t.Data, element(data, t.Datatype))
	}
}

func appendElement(b []byte, datatype string, v float64) []byte {
	switch datatype {
	case "INT64":
		return binary.LittleEndian.AppendUint64(b, uint64(int64(v)))
	case "INT32":
		return binary.LittleEndian.AppendUint32(b, uint32(int32(v)))
	}
	return binary.LittleEndian.AppendUint32(b, float32bits(v))
}

func element(b []byte, datatype string) float64 {
	bits := binary.LittleEndian.Uint32(b)
	if datatype == "INT32" {
		return float64(int32(bits))
	}
	return float32value(bits)
}

// get returns the status and body of a path.
func (p *process) get(path string) (int, []byte) {
	response, err := client.Get(p.url(path))
	if err != nil {
		return 0, nil
	}
	defer response.Body.Close()
	body, _ := io.ReadAll(response.Body)
	return response.StatusCode, body
}

func (p *process) health(path string) int {
	status, _ := p.get(path)
	return status
}

// alive fails unless the daemon says it is live.
func (p *process) alive() {
	p.t.Helper()
	if status := p.health("/v2/health/live"); status != 200 {
		p.t.Errorf("live is %d", status)
	}
}

// stats returns the statistics of a service.
func (p *process) stats(service string) (s statistics) {
	p.t.Helper()
	var all struct {
		Stats []statistics `json:"model_stats"`
	}
	status, body := p.get("/v2/models/" + service + "/stats")
	if err := json.Unmarshal(body, &all); err != nil || status != 200 || len(all.Stats) != 1 {
		p.t.Fatalf("statistics: status %d, %v: %s", status, err, body)
	}
	return all.Stats[0]
}

type statistics struct {
	Queries    int `json:"inference_count"`
	Executions int `json:"execution_count"`
	Times      map[string]struct {
		Count int   `json:"count"`
		NS    int64 `json:"ns"`
	} `json:"inference_stats"`
}

// refusedWith fails unless an answer is an error of this form.
func refusedWith(t *testing.T, a answer, status int, reasons ...string) {
	t.Helper()
	if !isRefusal(a, status, reasons...) {
		t.Errorf("got %v, want status %d, reason %v", a, status, reasons)
	}
}

func isRefusal(a answer, status int, reasons ...string) bool {
	if a.Err != nil || a.Status != status || a.Error == "" || status == 503 && a.Retry == "" {
		return false
	}
	for _, r := range reasons {
		if a.Reason == r {
			return true
		}
	}
	return len(reasons) == 0
}
