package http

import (
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/models"
)

// appendPortHead writes the start of the JSON object of a port in an answer.
func appendPortHead(b []byte, p *query.Port) []byte {
	b = appendString(append(b, `{"name":`...), p.Name)
	return append(append(append(b, `,"datatype":"`...), p.Type.Protocol()...), `","shape":[`...)
}

func appendMetadata(b []byte, s *query.Service, sig *query.Signature) []byte {
	b = appendString(append(b, `{"name":`...), s.Name)
	b = appendString(append(b, `,"versions":["`+query.ModelVersion+`"],"platform":`...), sig.Info.Platform)
	b = appendPorts(append(b, `,"inputs":[`...), sig.Inputs)
	b = appendPorts(append(b, `],"outputs":[`...), sig.Outputs)
	return append(b, `]}`...)
}

func appendPorts(b []byte, ports []query.Port) []byte {
	for n, p := range ports {
		if n > 0 {
			b = append(b, ',')
		}
		b = appendPortHead(b, &p)
		if p.AnyRank {
			b = append(b, "-1"...)
		}
		b = append(appendDims(b, p.Dims), `]}`...)
	}
	return b
}

func appendDims(b []byte, dims []int64) []byte {
	for n, d := range dims {
		if n > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, d, 10)
	}
	return b
}

// appendModelConfig writes the model configuration as Triton's clients read
// it: dimensions without the batch dimension where the model has one.
func appendModelConfig(b []byte, s *query.Service, sig *query.Signature) []byte {
	i := &sig.Info
	limit := 0
	if sig.Batched {
		limit = s.MaxQueryBatch
	}
	b = appendString(append(b, `{"name":`...), s.Name)
	b = appendString(append(b, `,"platform":`...), i.Platform)
	b = appendString(append(b, `,"backend":`...), strings.TrimSuffix(i.Platform, "_onnx"))
	b = append(b, `,"version_policy":{"latest":{"num_versions":1}},"max_batch_size":`...)
	b = strconv.AppendInt(b, int64(limit), 10)
	b = appendConfigPorts(append(b, `,"input":[`...), sig.Inputs, sig.Batched)
	b = appendConfigPorts(append(b, `],"output":[`...), sig.Outputs, sig.Batched)
	b = append(b, `],"model_transaction_policy":{"decoupled":false}`...)
	if sig.Batched && s.MaxBatch > 1 {
		b = append(b, `,"dynamic_batching":{"preferred_batch_size":[],"max_queue_delay_microseconds":0}`...)
	}
	b = append(b, `,"parameters":{`...)
	for n, p := range s.Parameters(i) {
		if n > 0 {
			b = append(b, ',')
		}
		b = appendString(append(appendString(b, p[0]), `:{"string_value":`...), p[1])
		b = append(b, '}')
	}
	return append(b, `}}`...)
}

func appendConfigPorts(b []byte, ports []query.Port, batched bool) []byte {
	for n, p := range ports {
		if n > 0 {
			b = append(b, ',')
		}
		dims := p.Dims
		if batched {
			dims = dims[1:]
		}
		b = appendString(append(b, `{"name":`...), p.Name)
		b = append(b, `,"data_type":"`+configType(p.Type)+`","dims":[`...)
		if p.AnyRank {
			b = append(b, "-1"...)
		}
		b = append(appendDims(b, dims), `]}`...)
	}
	return b
}

// configType returns the name of a type in a model configuration.
func configType(t models.DataType) string {
	if t == models.String {
		return "TYPE_STRING"
	}
	return "TYPE_" + t.Protocol()
}

func appendServerMetadata(b []byte, version string, extensions []string) []byte {
	b = appendString(append(b, `{"name":"`+query.Name+`","version":`...), version)
	b = append(b, `,"extensions":[`...)
	for i, x := range extensions {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendString(b, x)
	}
	return append(b, `]}`...)
}

func appendIndex(b []byte, services []*query.Service) []byte {
	b = append(b, '[')
	for i, s := range services {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendString(append(b, `{"name":`...), s.Name)
		if s.Ready() {
			b = append(b, `,"version":"`+query.ModelVersion+`","state":"READY","reason":""}`...)
		} else {
			b = append(b, `,"version":"`+query.ModelVersion+`","state":"UNAVAILABLE","reason":"`+query.ReasonLoading+`"}`...)
		}
	}
	return append(b, ']')
}

func appendStats(b []byte, services ...*query.Service) []byte {
	b = append(b, `{"model_stats":[`...)
	for i, s := range services {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendCounts(appendString(append(b, `{"name":`...), s.Name), s.Stats.Counts())
	}
	return append(b, `]}`...)
}

// appendCounts writes every field that Triton's clients read: those of the
// response cache too, which overlapd does not have, and those of computing input
// and output, which are part of its compute_infer.
func appendCounts(b []byte, c query.Counts) []byte {
	last := int64(0)
	if !c.Last.IsZero() {
		last = c.Last.UnixMilli()
	}
	b = appendNumber(append(b, `,"version":"`+query.ModelVersion+`"`...), "last_inference", uint64(last))
	b = appendNumber(b, "inference_count", c.Queries)
	b = appendNumber(b, "execution_count", c.Executions)
	b = append(b, `,"inference_stats":{`...)
	copied := query.Total{Count: c.Compute.Count}
	for i, t := range []struct {
		name string
		query.Total
	}{
		{"success", c.Success}, {"fail", c.Fail}, {"queue", c.Queue},
		{"compute_input", copied}, {"compute_infer", c.Compute}, {"compute_output", copied},
		{"cache_hit", query.Total{}}, {"cache_miss", query.Total{}},
	} {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, `"`+t.name+`":{"count":`...)
		b = strconv.AppendUint(b, t.Count, 10)
		b = append(strconv.AppendInt(append(b, `,"ns":`...), int64(t.Took), 10), '}')
	}
	return append(b, `},"batch_stats":[]}`...)
}

func appendNumber(b []byte, key string, v uint64) []byte {
	return strconv.AppendUint(append(b, `,"`+key+`":`...), v, 10)
}

const hexDigits = "0123456789abcdef"

// appendString appends s as a JSON string. Bytes that are not UTF-8 become
// U+FFFD.
func appendString[S string | []byte](b []byte, s S) []byte {
	b = append(b, '"')
	start := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= utf8.RuneSelf {
			r, size := decodeRune(s, i)
			if r == utf8.RuneError && size == 1 {
				b = append(b, s[start:i]...)
				b = append(b, `\ufffd`...)
				start = i + 1
			}
			i += size
			continue
		}
		if c >= ' ' && c != '"' && c != '\\' {
			i++
			continue
		}
		b = append(b, s[start:i]...)
		switch c {
		case '"', '\\':
			b = append(b, '\\', c)
		case '\n':
			b = append(b, `\n`...)
		case '\r':
			b = append(b, `\r`...)
		case '\t':
			b = append(b, `\t`...)
		default:
			b = append(b, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		}
		i++
		start = i
	}
	b = append(b, s[start:]...)
	return append(b, '"')
}

func decodeRune[S string | []byte](s S, i int) (rune, int) {
	return utf8.DecodeRuneInString(string(s[i:min(i+utf8.UTFMax, len(s))]))
}
