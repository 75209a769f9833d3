package daemon

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"strings"
	"testing"

	"github.com/overlapd/overlapd/daemon/query"
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
		sig := s.Signature()
		headBytes := len(body)
		if head > 0 {
			headBytes = min(int(head), len(body))
		}
		c := query.NewCall()
		r := &c.Request
		if err := new(decoder).decode(r, sig, body, headBytes); err != nil {
			checkRefusal(t, err)
			return
		}
		if !json.Valid(stripData(r, body[:headBytes])) {
			t.Fatalf("accepted, and no JSON: %q", body[:headBytes])
		}
		checkAccepted(t, c, sig, len(body))
		c.Service, c.ID = s, r.ID
		if !fuzzWrite(t, c, sig) {
			return
		}
		if !json.Valid(body[:headBytes]) {
			t.Fatalf("written, and no JSON: %q", body[:headBytes])
		}
		c.Reply.Outputs = c.Inputs
		r.FillOutputs(sig)
		if s.Name == "simple" || len(sig.Outputs) != len(c.Inputs) {
			return
		}
		out, err := appendReplyHead(nil, c, sig)
		if err == nil && !json.Valid(out) {
			t.Fatalf("the answer is no JSON: %q", out)
		}
	})
}

func checkRefusal(t *testing.T, err *query.Error) {
	t.Helper()
	if err.Status < 400 || err.Status >= 500 || err.Message == "" || len(err.Message) > 2000 {
		t.Fatalf("refused with %d %q", err.Status, err.Message)
	}
}

// stripData empties the arrays that decode has not looked into yet.
func stripData(r *query.Request, head []byte) []byte {
	out := bytes.Clone(head)
	for i := range r.Inputs {
		if in := &r.Inputs[i]; in.Text != nil {
			for j := in.TextAt + 1; j < in.TextAt+len(in.Text)-1; j++ {
				out[j] = ' '
			}
			out[in.TextAt], out[in.TextAt+len(in.Text)-1] = '[', ']'
		}
	}
	return out
}

func checkAccepted(t *testing.T, c *query.Call, sig *query.Signature, bodyBytes int) {
	t.Helper()
	r := &c.Request
	room, ok := r.MemoryBytes()
	if limit := int64(8*bodyBytes + query.Alignment*len(r.Inputs)); !ok || room > limit {
		t.Fatalf("a body of %d bytes wants %d of shared memory", bodyBytes, room)
	}
	size, seqLen := r.Dimensions(sig)
	if size < 1 || seqLen < 0 {
		t.Fatalf("batch size %d, sequence length %d", size, seqLen)
	}
	if r.Timeout < 0 || r.Priority < 0 || strings.ContainsAny(string(r.ID), "\r\n\x00") {
		t.Fatalf("timeout %v, priority %d, id %q", r.Timeout, r.Priority, r.ID)
	}
	for i := range r.Inputs {
		in := &r.Inputs[i]
		elements := int64(1)
		for _, d := range in.Shape() {
			elements *= d
		}
		if elements != in.Elements || len(in.Shape()) != len(sig.Inputs[i].Dims) {
			t.Fatalf("shape %v has %d elements, not %d", in.Shape(), elements, in.Elements)
		}
	}
}

// fuzzWrite writes the inputs of c as the endpoint does and reports whether
// all could be.
func fuzzWrite(t *testing.T, c *query.Call, sig *query.Signature) bool {
	t.Helper()
	for i := range c.Request.Inputs {
		in, p := &c.Request.Inputs[i], &sig.Inputs[i]
		dst := make([]byte, in.Bytes)
		n, err := writeInput(in, dst, p)
		if err != nil {
			checkRefusal(t, err)
			return false
		}
		if p.Type != models.String && int64(n) != in.Elements*int64(p.Type.Bytes()) {
			t.Fatalf("%d bytes for %d elements of %v", n, in.Elements, p.Type)
		}
		if p.Type == models.String {
			elements := int64(0)
			for rest := dst[:n]; len(rest) > 0; elements++ {
				rest = rest[query.StringHead+binary.LittleEndian.Uint32(rest):]
			}
			if elements != in.Elements {
				t.Fatalf("%d strings were written for %d elements", elements, in.Elements)
			}
		}
		c.Inputs = append(c.Inputs, query.Tensor{Name: p.Name, Type: p.Type, Shape: in.Shape(), Data: dst[:n]})
	}
	return true
}
