package daemon

import (
	"encoding/binary"
	"math"
	"net/http"
	"strconv"
	"unicode/utf8"

	"github.com/overlapd/overlapd/models"
	"github.com/valyala/fasthttp"
)

var errInternal = &Error{Status: http.StatusInternalServerError, Reason: ReasonInternal,
	Message: "overlapd failed to answer; its log says more"}

// writeReply writes the outputs that the request asked for, in its order. The
// bytes are copied: nothing of the answer lies in shared memory afterwards.
func (e *Endpoint) writeReply(ctx *fasthttp.RequestCtx, c *Call, sig *signature) *Error {
	if len(c.reply.Outputs) != len(sig.outputs) {
		e.log.Error().Str("service", c.Service.Name).Int("outputs", len(c.reply.Outputs)).
			Int("want", len(sig.outputs)).Msg("a reply has the wrong number of outputs")
		return errInternal
	}
	r := &c.request
	r.fillOutputs(sig)
	b, err := e.replyBody(c, sig)
	if err != nil {
		return err
	}
	if b.b, err = appendReplyHead(b.b, c, sig); err != nil {
		return e.fail(b, err)
	}
	head := len(b.b)
	anyBinary := false
	for _, o := range r.outputs {
		if o.binary {
			anyBinary = true
			b.b = append(b.b, c.reply.Outputs[o.port].Data...)
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

// fillOutputs names every output if the request named none.
func (r *request) fillOutputs(sig *signature) {
	if len(r.outputs) > 0 {
		return
	}
	for i := range sig.outputs {
		r.outputs = append(r.outputs, requestOutput{port: i, binary: r.binary})
	}
}

func appendReplyHead(b []byte, c *Call, sig *signature) ([]byte, *Error) {
	b = append(b, '{')
	if len(c.ID) > 0 {
		b = append(appendString(append(b, `"id":`...), c.ID), ',')
	}
	b = appendString(append(b, `"model_name":`...), c.Service.Name)
	b = append(b, `,"model_version":"`+modelVersion+`","outputs":[`...)
	for n, o := range c.request.outputs {
		if n > 0 {
			b = append(b, ',')
		}
		t, p := &c.reply.Outputs[o.port], &sig.outputs[o.port]
		b = appendDims(append(b, p.head...), t.Shape)
		if o.binary {
			b = append(b, `],"parameters":{"binary_data_size":`...)
			b = append(strconv.AppendInt(b, int64(len(t.Data)), 10), `}}`...)
			continue
		}
		var ok bool
		if b, ok = appendElements(append(b, `],"data":[`...), p.typ, t.Data); !ok {
			return nil, errNotJSON(p.name)
		}
		b = append(b, `]}`...)
	}
	return append(b, `]}`...), nil
}

func errNotJSON(output string) *Error {
	return &Error{Status: http.StatusBadRequest, Reason: ReasonNotJSON,
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
		if len(data) < stringHead {
			return nil, false
		}
		n := uint64(binary.LittleEndian.Uint32(data))
		if data = data[stringHead:]; n > uint64(len(data)) || !utf8.Valid(data[:n]) {
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
