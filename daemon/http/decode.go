package http

import (
	"strconv"
	"time"

	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/models"
)

// decoder knows what the keys of a request mean: it decodes the JSON into a call. The
// elements that it is reading are fields of its own, and it is pooled, so decoding does not
// allocate.
type decoder struct {
	json scanner
	c    *query.Call

	// binary is binary_data_output: the default for outputs without binary_data.
	binary bool
	input  input
	output output

	// sizes lists the binary inputs in the order of the request, which is the order of
	// their data.
	sizes []tensorSize

	// unsaid lists the outputs without binary_data. Their default may follow them in the
	// request.
	unsaid []int
}

// input is an input being read. Its name may come last, so it is assigned to a port only
// when its object is complete.
type input struct {
	query.Input
	port int

	// size is binary_data_size, or -1 if it was not given.
	size int64
}

// output is an output being read.
type output struct {
	query.Output

	// said is set if the request gives binary_data for it.
	said bool
}

// tensorSize is the length of an input's binary data behind the JSON.
type tensorSize struct {
	port int
	size int64
}

// decode decodes a request. The first headBytes of the body are JSON, the rest is binary
// data. c points into body until it is admitted.
func (d *decoder) decode(c *query.Call, body []byte, headBytes int) *query.Error {
	// The slices keep their memory from the previous request.
	*d = decoder{json: scanner{b: body[:headBytes]}, c: c, sizes: d.sizes[:0], unsaid: d.unsaid[:0]}
	if err := d.request(); err != nil {
		return err
	}
	if err := d.split(body[headBytes:]); err != nil {
		return err
	}
	if err := c.Check(); err != nil {
		return err
	}
	for _, o := range c.Outputs {
		if p := &c.Signature.Outputs[o.Port]; !o.Binary && query.BinaryOnly(p.Type) {
			return query.Invalid("output %q is %s, which has no JSON form: request binary data", p.Name, p.Type.Protocol())
		}
	}
	return nil
}

// forget drops all references into the body but keeps the memory of the slices.
func (d *decoder) forget() { *d = decoder{sizes: d.sizes, unsaid: d.unsaid} }

// split assigns the data behind the JSON to the binary inputs, in the order of the request.
// The sizes must add up exactly.
func (d *decoder) split(rest []byte) *query.Error {
	for _, t := range d.sizes {
		in := &d.c.Given[t.port]
		if t.size > int64(len(rest)) {
			return query.Invalid("input %q: binary_data_size %d exceeds the rest of the body", in.Name, t.size)
		}
		in.Data, rest = rest[:t.size:t.size], rest[t.size:]
	}
	if len(rest) > 0 {
		return query.Invalid("%d bytes follow the last input of the body", len(rest))
	}
	return nil
}

// object describes a JSON object that is read into a D. Each member may occur once; the first
// required members must occur. Unknown members are skipped. check is set for an object of
// parameters: it rejects unsupported ones, and their number is limited.
type object[D any] struct {
	name     string
	required int
	members  []member[D]
	check    func(key []byte) *query.Error
}

// member is a member of an object and the method that reads its value.
type member[D any] struct {
	key  string
	read func(D) *query.Error
}

// The objects of a request, as the V2 protocol and its extensions define them.
var (
	requestObject = object[*decoder]{name: "the request", members: []member[*decoder]{
		{"id", (*decoder).id},
		{"parameters", func(d *decoder) *query.Error { return d.object(&requestParameters) }},
		{"inputs", func(d *decoder) *query.Error { return d.array(`"inputs"`, (*decoder).readInput) }},
		{"outputs", func(d *decoder) *query.Error { return d.array(`"outputs"`, (*decoder).readOutput) }},
	}}
	requestParameters = object[*decoder]{name: `"parameters"`, check: query.CheckParameter[[]byte], members: []member[*decoder]{
		{"timeout", (*decoder).timeout},
		{"priority", (*decoder).priority},
		{"binary_data_output", (*decoder).binaryOutput},
		{query.ParameterVariant, (*decoder).variant},
		{query.ParameterLeastAccuracy, (*decoder).leastAccuracy},
	}}
	inputObject = object[*decoder]{name: "an input", required: 3, members: []member[*decoder]{
		{"name", (*decoder).inputName},
		{"shape", func(d *decoder) *query.Error { return d.array(`"shape"`, (*decoder).dimension) }},
		{"datatype", (*decoder).dataType},
		{"parameters", func(d *decoder) *query.Error { return d.object(&inputParameters) }},
		{"data", (*decoder).data},
	}}
	inputParameters = object[*decoder]{name: `"parameters"`, check: query.CheckTensorParameter[[]byte], members: []member[*decoder]{
		{"binary_data_size", (*decoder).binarySize},
	}}
	outputObject = object[*decoder]{name: "an output", required: 1, members: []member[*decoder]{
		{"name", (*decoder).outputName},
		{"parameters", func(d *decoder) *query.Error { return d.object(&outputParameters) }},
	}}
	outputParameters = object[*decoder]{name: `"parameters"`, check: query.CheckTensorParameter[[]byte], members: []member[*decoder]{
		{"binary_data", (*decoder).binaryData},
	}}
)

// object reads an object.
func (d *decoder) object(o *object[*decoder]) *query.Error { return readObject(&d.json, d, o) }

// readObject reads an object into d.
func readObject[D any](s *scanner, d D, o *object[D]) *query.Error {
	if !s.take('{') {
		return query.Invalid("%s must be an object (byte %d)", o.name, s.i)
	}
	seen, unknown := 0, 0
	err := s.each('}', func() *query.Error {
		key, err := s.key()
		if err != nil {
			return err
		}
		at := 0
		for at < len(o.members) && o.members[at].key != string(key) {
			at++
		}
		switch {
		case at == len(o.members):
			unknown++
			return o.unknown(s, key, unknown)
		case seen&(1<<at) != 0:
			return query.Invalid("%q is given twice (byte %d)", key, s.i)
		}
		seen |= 1 << at
		return o.members[at].read(d)
	})
	if err != nil {
		return err
	}
	for i := range o.required {
		if seen&(1<<i) == 0 {
			return query.Invalid("%s has no %q (byte %d)", o.name, o.members[i].key, s.i).Of(o.members[i].key)
		}
	}
	return nil
}

// unknown skips the value of an unknown member. count is how many there were in this
// object, including this one.
func (o *object[D]) unknown(s *scanner, key []byte, count int) *query.Error {
	if o.check != nil {
		if err := o.check(key); err != nil {
			return err
		}
		if count > query.MaxParameters {
			return query.Invalid("more than %d parameters", query.MaxParameters)
		}
	}
	return s.skip()
}

// array calls element for each element of an array. what names the array in errors.
func (d *decoder) array(what string, element func(*decoder) *query.Error) *query.Error {
	if !d.json.take('[') {
		return query.Invalid("%s must be an array (byte %d)", what, d.json.i)
	}
	return d.json.each(']', func() *query.Error { return element(d) })
}

// request reads the whole JSON document and applies the default for outputs.
func (d *decoder) request() *query.Error {
	if err := d.object(&requestObject); err != nil {
		return err
	}
	if err := d.json.end(); err != nil {
		return err
	}
	for _, i := range d.unsaid {
		d.c.Outputs[i].Binary = d.binary
	}
	d.c.AskAll(d.binary)
	return nil
}

// id reads the client's name for the query.
func (d *decoder) id() *query.Error {
	v, err := d.json.str(nil)
	if err != nil {
		return err
	}
	return d.c.SetID(v)
}

// The names of parameters in errors.
const (
	timeoutName  = `the parameter "timeout" (microseconds)`
	priorityName = `the parameter "priority"`
)

// timeout reads the timeout in microseconds, as Triton's schedule_policy extension has it.
func (d *decoder) timeout() *query.Error {
	usec, err := d.json.integer(timeoutName)
	if err == nil {
		d.c.Timeout, err = timeoutOf(usec)
	}
	return err
}

// timeoutOf checks a timeout in microseconds.
func timeoutOf(usec int64) (time.Duration, *query.Error) {
	if usec < 0 || usec > query.MaxTimeoutUsec {
		return 0, query.Invalid(`the parameter "timeout" must be in [0, %d] microseconds, not %d`, query.MaxTimeoutUsec, usec)
	}
	return time.Duration(usec) * time.Microsecond, nil
}

// priority reads the priority, 1 being the highest and 0 the default.
func (d *decoder) priority() *query.Error {
	p, err := d.json.integer(priorityName)
	if err == nil {
		d.c.Priority, err = priorityOf(p)
	}
	return err
}

// priorityOf checks a priority.
func priorityOf(p int64) (int, *query.Error) {
	if p < 0 || p > query.MaxPriority {
		return 0, query.Invalid(`the parameter "priority" must be in [0, %d], not %d`, query.MaxPriority, p)
	}
	return int(p), nil
}

// binaryOutput reads the default for outputs that do not say whether they are binary.
func (d *decoder) binaryOutput() (err *query.Error) {
	d.binary, err = d.json.boolean(`the parameter "binary_data_output"`)
	return err
}

// variant reads the name of the variant that must answer.
func (d *decoder) variant() *query.Error {
	name, err := d.json.str(nil)
	if err != nil {
		return query.Invalid("the parameter %q must be a string, the name of a variant (byte %d)", query.ParameterVariant, d.json.i)
	}
	return d.c.AskVariant(name)
}

// leastAccuracy reads the minimum accuracy.
func (d *decoder) leastAccuracy() *query.Error {
	least, err := d.json.accuracy()
	if err != nil {
		return err
	}
	return d.c.AskAccuracy(least)
}

// accuracy reads the parameter least_accuracy. A number out of range becomes infinite, which
// AskAccuracy rejects.
func (s *scanner) accuracy() (float64, *query.Error) {
	token, _, err := s.number()
	if err != nil {
		return 0, query.Invalid("the parameter %q must be a number (byte %d)", query.ParameterLeastAccuracy, s.i)
	}
	least, _ := strconv.ParseFloat(string(token), 64)
	return least, nil
}

// readInput reads one element of "inputs".
func (d *decoder) readInput() *query.Error {
	d.input = input{size: -1}
	in := &d.input
	if err := d.object(&inputObject); err != nil {
		return err
	}
	if err := d.c.Give(in.port, &in.Input); err != nil {
		return err
	}
	name := d.c.Given[in.port].Name
	switch {
	case in.size >= 0 && in.Text != nil:
		return query.Invalid("input %q has both data and binary_data_size", name)
	case in.size < 0 && in.Text == nil:
		return query.Invalid("input %q has neither data nor binary_data_size", name)
	case in.Text != nil && query.BinaryOnly(in.Type):
		return query.Invalid("input %q is %s, which has no JSON form: send binary data", name, in.Type.Protocol())
	}
	if in.Text == nil {
		d.sizes = append(d.sizes, tensorSize{in.port, in.size})
	}
	return nil
}

// portName reads the name of an input or output and returns its index.
func (d *decoder) portName(what string, ports []query.Port) (int, *query.Error) {
	name, err := d.json.str(nil)
	if err != nil {
		return 0, err
	}
	n := query.Find(ports, name)
	if n < 0 {
		return 0, query.Invalid("the model has no %s %q", what, query.Cut(name))
	}
	return n, nil
}

// inputName reads the name of an input and finds its port.
func (d *decoder) inputName() (err *query.Error) {
	d.input.port, err = d.portName("input", d.c.Signature.Inputs)
	return err
}

// dimension reads one dimension. The rank is checked before the number is parsed.
func (d *decoder) dimension() *query.Error {
	if len(d.input.Shape) == query.MaxRank {
		return query.Invalid("a shape has more than %d dimensions", query.MaxRank)
	}
	v, err := d.json.integer("a dimension")
	if err != nil {
		return err
	}
	return d.input.AddDimension(v)
}

// dataType reads the type of an input in the protocol's notation, such as FP32.
func (d *decoder) dataType() *query.Error {
	name, err := d.json.str(nil)
	if err != nil {
		return err
	}
	t, ok := models.ProtocolType(string(query.Cut(name)))
	if !ok {
		return query.Invalid("unknown datatype %q", query.Cut(name))
	}
	d.input.Type = t
	return nil
}

// data notes where the JSON array of an input is. Its elements are parsed when they are
// copied into shared memory, see [query.Call.Admit].
func (d *decoder) data() (err *query.Error) {
	d.input.Text, err = d.json.extent()
	d.input.TextAt = d.json.i - len(d.input.Text)
	return err
}

// binarySize reads the length of an input's binary data.
func (d *decoder) binarySize() *query.Error {
	size, err := d.json.integer(`the parameter "binary_data_size"`)
	if err == nil && size < 0 {
		return query.Invalid(`the parameter "binary_data_size" must not be negative`)
	}
	d.input.size = size
	return err
}

// readOutput reads one element of "outputs".
func (d *decoder) readOutput() *query.Error {
	if have := len(d.c.Signature.Outputs); len(d.c.Outputs) == have {
		return query.Invalid("more outputs are asked for than the model's %d", have)
	}
	d.output = output{}
	if err := d.object(&outputObject); err != nil {
		return err
	}
	if !d.output.said {
		d.unsaid = append(d.unsaid, len(d.c.Outputs))
	}
	return d.c.Ask(d.output.Output)
}

// outputName reads the name of an output and finds its port.
func (d *decoder) outputName() (err *query.Error) {
	d.output.Port, err = d.portName("output", d.c.Signature.Outputs)
	return err
}

// binaryData reads whether an output is wanted as binary data, which overrides the default
// of the request.
func (d *decoder) binaryData() (err *query.Error) {
	d.output.said = true
	d.output.Binary, err = d.json.boolean(`the parameter "binary_data"`)
	return err
}
