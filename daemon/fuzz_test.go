package daemon

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/overlapd/overlapd/models"
)

// FuzzInferRequest decodes a request and writes its tensors. Whatever is
// accepted must be JSON, have the shapes of the model, fill exactly the bytes
// of its shapes, and come back as outputs that are JSON again.
func FuzzInferRequest(f *testing.F) {
	f.Add(uint8(0), uint16(0), []byte(simple(`"id":"1",`)))
	body, _ := simpleBinary()
	f.Add(uint8(0), uint16(len(body)-128), []byte(body))
	for i, e := range elementTypes {
		f.Add(uint8(i+1), uint16(0), []byte(echo(e.Protocol(), "[2,1]", "[[1],[0]]")))
	}
	f.Add(uint8(6), uint16(0), []byte(echo("BYTES", "[1,2]", `["a\u00e4\ud834\udd1e","\n"]`)))
	f.Add(uint8(6), uint16(0), append([]byte(binaryEcho("BYTES", "[1,1]", 5)), text("a")...))
	f.Add(uint8(1), uint16(0), []byte(echo("FP32", "[1,2]", `[1e-50,3.4e38]`)))
	f.Add(uint8(15), uint16(0), []byte(`{"parameters":{"timeout":5,"priority":1},"outputs":[{"name":"C"}],"inputs":[]}`))
	services := newFake(f).services
	f.Fuzz(func(t *testing.T, service uint8, head uint16, body []byte) {
		s := services[int(service)%(len(services)-1)]
		sig := s.signature.Load()
		headBytes := len(body)
		if head > 0 {
			headBytes = min(int(head), len(body))
		}
		c := NewCall()
		r := &c.request
		if err := r.decode(sig, body, headBytes); err != nil {
			checkRefusal(t, err)
			return
		}
		if !json.Valid(stripData(r, body[:headBytes])) {
			t.Fatalf("accepted, and no JSON: %q", body[:headBytes])
		}
		checkAccepted(t, c, sig, len(body))
		c.Service, c.ID = s, r.id
		if !fuzzWrite(t, c, sig) {
			return
		}
		if !json.Valid(body[:headBytes]) {
			t.Fatalf("written, and no JSON: %q", body[:headBytes])
		}
		c.reply.Outputs = c.Inputs
		r.fillOutputs(sig)
		if s.Name == "simple" || len(sig.outputs) != len(c.Inputs) {
			return
		}
		out, err := appendReplyHead(nil, c, sig)
		if err == nil && !json.Valid(out) {
			t.Fatalf("the answer is no JSON: %q", out)
		}
	})
}

func checkRefusal(t *testing.T, err *Error) {
	t.Helper()
	if err.Status < 400 || err.Status >= 500 || err.Message == "" || len(err.Message) > 2000 {
		t.Fatalf("refused with %d %q", err.Status, err.Message)
	}
}

// stripData empties the arrays that decode has not looked into yet.
func stripData(r *request, head []byte) []byte {
	out := bytes.Clone(head)
	for i := range r.inputs {
		if in := &r.inputs[i]; in.data != nil {
			for j := in.dataAt + 1; j < in.dataAt+len(in.data)-1; j++ {
				out[j] = ' '
			}
			out[in.dataAt], out[in.dataAt+len(in.data)-1] = '[', ']'
		}
	}
	return out
}

func checkAccepted(t *testing.T, c *Call, sig *signature, bodyBytes int) {
	t.Helper()
	r := &c.request
	room, ok := r.memoryBytes()
	if limit := int64(8*bodyBytes + alignment*len(r.inputs)); !ok || room > limit {
		t.Fatalf("a body of %d bytes wants %d of shared memory", bodyBytes, room)
	}
	size, seqLen := r.dimensions(sig)
	if size < 1 || seqLen < 0 {
		t.Fatalf("batch size %d, sequence length %d", size, seqLen)
	}
	if r.timeout < 0 || r.priority < 0 || strings.ContainsAny(string(r.id), "\r\n\x00") {
		t.Fatalf("timeout %v, priority %d, id %q", r.timeout, r.priority, r.id)
	}
	for i := range r.inputs {
		in := &r.inputs[i]
		elements := int64(1)
		for _, d := range in.dims() {
			elements *= d
		}
		if elements != in.elements || len(in.dims()) != len(sig.inputs[i].dims) {
			t.Fatalf("shape %v has %d elements, not %d", in.dims(), elements, in.elements)
		}
	}
}

// fuzzWrite writes the inputs of c as the endpoint does and reports whether
// all could be.
func fuzzWrite(t *testing.T, c *Call, sig *signature) bool {
	t.Helper()
	for i := range c.request.inputs {
		in, p := &c.request.inputs[i], &sig.inputs[i]
		dst := make([]byte, in.bytes)
		n, err := in.write(dst, p)
		if err != nil {
			checkRefusal(t, err)
			return false
		}
		if p.typ != models.String && int64(n) != in.elements*int64(p.typ.Bytes()) {
			t.Fatalf("%d bytes for %d elements of %v", n, in.elements, p.typ)
		}
		if p.typ == models.String {
			if err := checkStrings(p, &requestInput{binary: dst[:n], elements: in.elements}); err != nil {
				t.Fatalf("what was written cannot be read: %v", err)
			}
		}
		c.Inputs = append(c.Inputs, Tensor{Name: p.name, Type: p.typ, Shape: in.dims(), Data: dst[:n]})
	}
	return true
}
