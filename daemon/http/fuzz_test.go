package http

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"math"
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
	f.Add(uint8(6), uint16(0), append([]byte(binaryEcho("BYTES", "[1,1]", 5)), bytesElement("a")...))
	f.Add(uint8(1), uint16(0), []byte(echo("FP32", "[1,2]", `[1e-50,3.4e38]`)))
	f.Add(uint8(15), uint16(0), []byte(`{"parameters":{"timeout":5,"priority":1},"outputs":[{"name":"C"}],"inputs":[]}`))
	f.Add(uint8(16), uint16(0), []byte(`{"parameters":{"variant":"mid","least_accuracy":7.7e1},`+variedInput+`}`))
	services := newFake(f).List
	f.Fuzz(func(t *testing.T, service uint8, head uint16, body []byte) {
		s := services[int(service)%(len(services)-1)]
		headBytes := len(body)
		if head > 0 {
			headBytes = min(int(head), len(body))
		}
		c := query.NewCall(s)
		if err := new(decoder).decode(c, body, headBytes); err != nil {
			checkRefusal(t, err)
			return
		}
		if !json.Valid(stripData(c, body[:headBytes])) {
			t.Fatalf("accepted, and no JSON: %q", body[:headBytes])
		}
		checkAccepted(t, c)
		if !fuzzWrite(t, c, len(body)) {
			return
		}
		if !json.Valid(body[:headBytes]) {
			t.Fatalf("written, and no JSON: %q", body[:headBytes])
		}
		c.Reply.Outputs = append(c.Reply.Outputs, c.Inputs...)
		if len(s.Variants) > 0 {
			c.Reply.Variant = s.Variants[max(c.Variant, 0)].Name
		}
		if s.Name == "simple" || len(c.Signature.Outputs) != len(c.Inputs) {
			return
		}
		out, err := appendReplyHead(nil, c)
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
func stripData(c *query.Call, head []byte) []byte {
	out := bytes.Clone(head)
	for i := range c.Given {
		if in := &c.Given[i]; in.Text != nil {
			for j := in.TextAt + 1; j < in.TextAt+len(in.Text)-1; j++ {
				out[j] = ' '
			}
			out[in.TextAt], out[in.TextAt+len(in.Text)-1] = '[', ']'
		}
	}
	return out
}

func checkAccepted(t *testing.T, c *query.Call) {
	t.Helper()
	if c.Timeout < 0 || c.Priority < 0 || strings.ContainsAny(string(c.ID), "\r\n\x00") {
		t.Fatalf("timeout %v, priority %d, id %q", c.Timeout, c.Priority, c.ID)
	}
	if v := c.Service.Variants; c.Variant >= len(v) || c.Variant >= 0 && !(v[c.Variant].Accuracy >= c.LeastAccuracy) || !(c.LeastAccuracy >= 0 && c.LeastAccuracy <= 78.31) {
		t.Fatalf("variant %d of at least %v", c.Variant, c.LeastAccuracy)
	}
	for i := range c.Given {
		in := &c.Given[i]
		elements := int64(1)
		for _, d := range in.Shape {
			elements *= d
		}
		if elements != in.Elements || len(in.Shape) != len(c.Signature.Inputs[i].Dims) {
			t.Fatalf("shape %v has %d elements, not %d", in.Shape, elements, in.Elements)
		}
	}
}

// fuzzWrite admits c as the endpoint does and reports whether it could be.
func fuzzWrite(t *testing.T, c *query.Call, bodyBytes int) bool {
	t.Helper()
	c.Service.MaxQueryBatch = math.MaxInt
	if err := c.Admit(writeInput); err != nil {
		checkRefusal(t, err)
		return false
	}
	if c.Size < 1 || c.SeqLen < 0 {
		t.Fatalf("batch size %d, sequence length %d", c.Size, c.SeqLen)
	}
	if room := len(c.Memory.Bytes); room > 8*bodyBytes+query.Alignment*len(c.Inputs) {
		t.Fatalf("a body of %d bytes wants %d of shared memory", bodyBytes, room)
	}
	for i := range c.Inputs {
		in := &c.Inputs[i]
		if in.Type != models.String {
			if int64(len(in.Data)) != c.Given[i].Elements*int64(in.Type.Bytes()) {
				t.Fatalf("%d bytes for %d elements of %v", len(in.Data), c.Given[i].Elements, in.Type)
			}
			continue
		}
		elements := int64(0)
		for rest := in.Data; len(rest) > 0; elements++ {
			rest = rest[query.StringHead+binary.LittleEndian.Uint32(rest):]
		}
		if elements != c.Given[i].Elements {
			t.Fatalf("%d strings were written for %d elements", elements, c.Given[i].Elements)
		}
	}
	return true
}
