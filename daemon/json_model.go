package daemon

import (
	"strconv"
	"strings"

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
	for n, p := range configParameters(s, i) {
		if n > 0 {
			b = append(b, ',')
		}
		b = appendString(append(appendString(b, p.key), `:{"string_value":`...), p.value)
		b = append(b, '}')
	}
	return append(b, `}}`...)
}

// configParameter is what a model configuration says beyond Triton's fields.
type configParameter struct{ key, value string }

func configParameters(s *query.Service, i *query.Info) []configParameter {
	list := []configParameter{
		{"qos_target_us", strconv.FormatInt(s.QoSTarget.Microseconds(), 10)},
		{"queue_limit", strconv.Itoa(s.QueueLimit)},
		{"policy", s.Policy},
		{"device", i.Device},
		{"operators", strconv.Itoa(i.Operators)},
		{"sha256", i.Hash},
	}
	if i.Cut != "" {
		list = append(list, configParameter{"cut", i.Cut})
	}
	return list
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
