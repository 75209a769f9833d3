package daemon

import (
	"encoding/binary"
	"math"
	"net/http"
	"strconv"
	"unicode/utf8"

	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/models"
	"github.com/valyala/fasthttp"
)

// writeReply writes the outputs that the request asked for, in its order. The
// bytes are copied: nothing of the answer lies in shared memory afterwards.
func (e *Endpoint) writeReply(ctx *fasthttp.RequestCtx, c *query.Call, sig *query.Signature) *query.Error {
	if len(c.Reply.Outputs) != len(sig.Outputs) {
		e.log.Error().Str("service", c.Service.Name).Int("outputs", len(c.Reply.Outputs)).
			Int("want", len(sig.Outputs)).Msg("a reply has the wrong number of outputs")
		return query.ErrInternal
	}
	r := &c.Request
	r.FillOutputs(sig)
	b, err := e.replyBody(c, sig)
	if err != nil {
		return err
	}
	if b.b, err = appendReplyHead(b.b, c, sig); err != nil {
		return e.fail(b, err)
	}
	head := len(b.b)
	anyBinary := false
	for _, o := range r.Outputs {
		if o.Binary {
			anyBinary = true
			b.b = append(b.b, c.Reply.Outputs[o.Port].Data...)
		}
	}
	ctx.SetContentType(contentJSON)
	if anyBinary {
		ctx.SetContentType(contentBinary)
		ctx.Response.Header.Set(headerLength, strconv.Itoa(head))
	}
	e.force(b)
	e.send(ctx, b)
	return nil
}

func appendReplyHead(b []byte, c *query.Call, sig *query.Signature) ([]byte, *query.Error) {
	b = append(b, '{')
	if len(c.ID) > 0 {
		b = append(appendString(append(b, `"id":`...), c.ID), ',')
	}
	b = appendString(append(b, `"model_name":`...), c.Service.Name)
	b = append(b, `,"model_version":"`+query.ModelVersion+`","outputs":[`...)
	for n, o := range c.Request.Outputs {
		if n > 0 {
			b = append(b, ',')
		}
		t, p := &c.Reply.Outputs[o.Port], &sig.Outputs[o.Port]
		b = appendDims(appendPortHead(b, p), t.Shape)
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

func errNotJSON(output string) *query.Error {
	return &query.Error{Status: http.StatusBadRequest, Reason: query.ReasonNotJSON,
		Message: "output " + strconv.Quote(output) + " holds a value that JSON cannot carry, such as NaN: ask for binary output"}
}

// appendElements appends the elements of a tensor, flat. It reports false if
// JSON cannot carry one of them.
func appendElements(b []byte, t models.DataType, data []byte) ([]byte, bool) {
	if t == models.String {
		return appendTexts(b, data)
	}
	size := t.Bytes()
	for i := 0; i+size <= len(data); i += size {
		if i > 0 {
			b = append(b, ',')
		}
		e := data[i : i+size]
		switch t {
		case models.Float32:
			v := float64(math.Float32frombits(binary.LittleEndian.Uint32(e)))
			if math.IsNaN(v) || math.IsInf(v, 0) {
				return nil, false
			}
			b = strconv.AppendFloat(b, v, 'g', -1, 32)
		case models.Float64:
			v := math.Float64frombits(binary.LittleEndian.Uint64(e))
			if math.IsNaN(v) || math.IsInf(v, 0) {
				return nil, false
			}
			b = strconv.AppendFloat(b, v, 'g', -1, 64)
		case models.Bool:
			b = strconv.AppendBool(b, e[0] != 0)
		case models.Int8, models.Int16, models.Int32, models.Int64:
			b = strconv.AppendInt(b, signed(e), 10)
		case models.Uint8, models.Uint16, models.Uint32, models.Uint64:
			b = strconv.AppendUint(b, unsigned(e), 10)
		default:
			return nil, false
		}
	}
	return b, true
}

func unsigned(e []byte) uint64 {
	switch len(e) {
	case 1:
		return uint64(e[0])
	case 2:
		return uint64(binary.LittleEndian.Uint16(e))
	case 4:
		return uint64(binary.LittleEndian.Uint32(e))
	}
	return binary.LittleEndian.Uint64(e)
}

func signed(e []byte) int64 {
	unused := 64 - 8*len(e)
	return int64(unsigned(e)<<unused) >> unused
}

// appendTexts appends a tensor of type BYTES as JSON strings. Elements that
// are not UTF-8 have no JSON form.
func appendTexts(b, data []byte) ([]byte, bool) {
	for first := true; len(data) > 0; first = false {
		if len(data) < query.StringHead {
			return nil, false
		}
		n := uint64(binary.LittleEndian.Uint32(data))
		if data = data[query.StringHead:]; n > uint64(len(data)) || !utf8.Valid(data[:n]) {
			return nil, false
		}
		if !first {
			b = append(b, ',')
		}
		b = appendString(b, data[:n])
		data = data[n:]
	}
	return b, true
}
