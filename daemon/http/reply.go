package http

import (
	"net/http"
	"strconv"

	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/models"
)

// appendReplyHead appends the JSON of a response. Outputs that are not binary are written
// as text here.
func appendReplyHead(b []byte, c *query.Call) ([]byte, *query.Error) {
	b = append(b, '{')
	if len(c.ID) > 0 {
		b = append(appendString(append(b, `"id":`...), c.ID), ',')
	}
	b = appendString(append(b, `"model_name":`...), query.ModelOf(c.Service.Name))
	b = append(append(append(b, `,"model_version":"`...), c.Service.Version...), `",`...)
	if v := c.Reply.Variant; v != "" {
		b = append(appendString(append(b, `"parameters":{"`+query.ParameterVariant+`":`...), v), `},`...)
	}
	b = append(b, `"outputs":[`...)
	for n, o := range c.Outputs {
		if n > 0 {
			b = append(b, ',')
		}
		t, p := &c.Reply.Outputs[o.Port], &c.Signature.Outputs[o.Port]
		b = appendString(append(b, `{"name":`...), p.Name)
		b = append(append(append(b, `,"datatype":"`...), p.Type.Protocol()...), `","shape":[`...)
		for i, d := range t.Shape {
			if i > 0 {
				b = append(b, ',')
			}
			b = strconv.AppendInt(b, d, 10)
		}
		if o.Binary {
			b = append(b, `],"parameters":{"binary_data_size":`...)
			b = append(strconv.AppendInt(b, int64(len(t.Data)), 10), `}}`...)
			continue
		}
		var ok bool
		if b, ok = appendElements(append(b, `],"data":[`...), p.Type, t.Data); !ok {
			return nil, errNotJSON(p.Name)
		}
		b = append(b, `]}`...)
	}
	return append(b, `]}`...), nil
}

// errNotJSON returns the error for an output with a value that JSON cannot represent.
func errNotJSON(output string) *query.Error {
	return &query.Error{Status: http.StatusBadRequest, Reason: query.ReasonNotJSON,
		Message: "output " + strconv.Quote(output) + " contains a value that JSON cannot represent, such as NaN: request binary output"}
}

// Upper bounds in bytes of the JSON around all outputs, around one output, and of one
// dimension with its comma.
const (
	replyHeadBytes  = 128
	outputHeadBytes = 128
	dimBytes        = 21
)

// replyBody returns an empty body with room for the whole response. A name can grow sixfold
// when each of its bytes becomes a \u escape.
func replyBody(memory *query.Budget, c *query.Call) (*query.Body, *query.Error) {
	room := int64(len(c.Service.Name)+len(c.Reply.Variant)+6*len(c.ID)) + replyHeadBytes
	for _, o := range c.Outputs {
		t, p := &c.Reply.Outputs[o.Port], &c.Signature.Outputs[o.Port]
		room += int64(6*len(p.Name)+dimBytes*len(t.Shape)) + outputHeadBytes
		if o.Binary {
			room += int64(len(t.Data))
		} else {
			room += textBytes(p.Type, int64(len(t.Data)))
		}
	}
	return memory.Room(room)
}

// textBytes returns the maximum length of a tensor as JSON, given its length in bytes.
func textBytes(t models.DataType, bytes int64) int64 {
	if t == models.String {
		// A control character takes six bytes. The four bytes of each length pay for quotes
		// and a comma.
		return 6 * bytes
	}
	// The longest values with their comma, by element size: false, -32768, -1.1754944e-38,
	// and a double.
	longest := [...]int64{1: 6, 2: 7, 4: 16, 8: 26}
	return bytes / int64(t.Bytes()) * longest[t.Bytes()]
}
