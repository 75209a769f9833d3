package http

import (
	"cmp"
	"encoding/base64"
	"encoding/binary"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/daemon/text"
	"github.com/overlapd/overlapd/models"
)

const (
	// headerTimeout is the timeout of a request of texts in microseconds, for clients that
	// cannot add it to the body.
	headerTimeout = "Overlapd-Timeout"

	// headerCut is the number of texts that were longer than the longest sequence.
	headerCut = "Overlapd-Truncated"
)

// textRoute is a kind of requests of texts.
type textRoute struct {
	name string
	body *object[*textRequest]

	// check completes the items of a request whose body has been read.
	check func(*textRequest) *query.Error

	// raw is set for scores in the place of embeddings.
	raw bool

	// encode appends the answer to b, which has room for it by size.
	size   func(*textRequest, *text.Answer) int64
	encode func(b []byte, r *textRequest, a *text.Answer) ([]byte, *query.Error)
}

var (
	embeddingsRoute = textRoute{"/v1/embeddings", &embeddingsBody, (*textRequest).checkEmbeddings, false, embeddingsBytes, appendEmbeddings}
	rerankRoute     = textRoute{"/v1/rerank", &rerankBody, (*textRequest).checkRerank, true, rerankBytes, appendRerank}
)

// textInference answers requests of texts.
type textInference struct {
	inference *inference
	bodies    *bodies
	server    *text.Server
}

// answer answers a request of texts.
func (t *textInference) answer(ctx *fasthttp.RequestCtx, route *textRoute) {
	r := &textRequest{memory: t.bodies.memory}
	if c, ok := ctx.Conn().(*conn); ok {
		r.memory = c.share(r.memory)
	}
	defer func() { r.memory.Give(r.held) }()
	if err := t.respond(ctx, route, r); err != nil {
		writeError(ctx, err)
	}
	if r.Service != nil {
		t.inference.reportLoad(ctx, r.Service.Name)
	}
}

// respond answers a request, or returns its error.
func (t *textInference) respond(ctx *fasthttp.RequestCtx, route *textRoute, r *textRequest) (err *query.Error) {
	if err := t.decode(ctx, route, r); err != nil {
		return err
	}
	r.Trace = t.inference.beginTrace(ctx, r.Service, route.name)
	defer func() { t.inference.queries.EndTrace(r.Trace, err, "") }()
	a, err := t.server.Answer(here(ctx), &r.Request)
	if err != nil {
		return err
	}
	defer a.Release()
	b, err := t.bodies.memory.Room(route.size(r, a))
	if err != nil {
		return err
	}
	written, err := route.encode(b.Bytes, r, a)
	if err != nil {
		b.Release()
		return err
	}
	ctx.SetContentType(contentJSON)
	if a.Cut > 0 {
		ctx.Response.Header.Set(headerCut, strconv.Itoa(a.Cut))
	}
	if a.Variant != "" {
		ctx.Response.Header.Set(headerVariant, a.Variant)
	}
	b.Bytes = written
	b.Settle()
	t.bodies.send(ctx, b)
	return nil
}

// decode reads a request. The texts are copied out of the body, which is released before they
// are tokenized, and count against the memory budget until the answer is written.
func (t *textInference) decode(ctx *fasthttp.RequestCtx, route *textRoute, r *textRequest) *query.Error {
	b, err := t.bodies.read(ctx)
	if err != nil {
		return err
	}
	defer b.Release()
	r.Arrival, r.Memory, r.Raw = time.Now(), r.memory, route.raw
	if r.held = int64(len(b.Bytes)); !r.memory.Take(r.held) {
		r.held = 0
		return query.ErrBodyMemory
	}
	r.json = scanner{b: b.Bytes}
	if err := readObject(&r.json, r, route.body); err != nil {
		return err
	}
	if err := r.json.end(); err != nil {
		return err
	}
	if err := r.header(ctx); err != nil {
		return err
	}
	if err := route.check(r); err != nil {
		return err
	}
	r.options.sender = query.Sender(ctx.RemoteAddr())
	r.Options = &r.options
	r.Service, err = t.inference.queries.Find([]byte(r.model), nil)
	if err != nil {
		return err.Of("model")
	}
	return nil
}

// textRequest is a request of texts while it is decoded and answered.
type textRequest struct {
	text.Request
	json    scanner
	memory  *query.Budget
	held    int64
	model   string
	options textOptions

	// Of /v1/embeddings: base64 is set if embeddings are wanted in that form, dimensions is 0
	// for all.
	base64     bool
	dimensions int

	// Of /v1/rerank: top is 0 for all documents, and they are returned if echo is set.
	query     string
	documents []string
	top       int
	echo      bool
}

// textOptions are the parameters of a request of texts, and who sends it.
type textOptions struct {
	sender        netip.Prefix
	timeout       time.Duration
	priority      int
	variant       string
	leastAccuracy float64
}

// Apply sets the parameters of a call.
func (o *textOptions) Apply(c *query.Call) *query.Error {
	c.Sender, c.Timeout, c.Priority = o.sender, o.timeout, o.priority
	if o.variant != "" {
		if err := c.AskVariant([]byte(o.variant)); err != nil {
			return err.Of("parameters")
		}
	}
	if o.leastAccuracy != 0 {
		if err := c.AskAccuracy(o.leastAccuracy); err != nil {
			return err.Of("parameters")
		}
	}
	return nil
}

// The bodies of requests. Members that other servers know and this one has no use for are
// skipped, as unknown ones are.
var (
	embeddingsBody = object[*textRequest]{name: "the request", required: 2, members: []member[*textRequest]{
		{"model", (*textRequest).readModel},
		{"input", named("input", (*textRequest).readInput)},
		{"encoding_format", optional("encoding_format", (*textRequest).readFormat)},
		{"dimensions", optional("dimensions", (*textRequest).readDimensions)},
		{"parameters", optional("parameters", (*textRequest).readParameters)},
	}}
	rerankBody = object[*textRequest]{name: "the request", required: 3, members: []member[*textRequest]{
		{"model", (*textRequest).readModel},
		{"query", named("query", (*textRequest).readQuery)},
		{"documents", named("documents", (*textRequest).readDocuments)},
		{"top_n", optional("top_n", (*textRequest).readTop)},
		{"return_documents", optional("return_documents", (*textRequest).readEcho)},
		{"parameters", optional("parameters", (*textRequest).readParameters)},
	}}
	textParameters = object[*textRequest]{name: `"parameters"`, check: query.CheckParameter[[]byte], members: []member[*textRequest]{
		{"timeout", (*textRequest).readTimeout},
		{"priority", (*textRequest).readPriority},
		{query.ParameterVariant, (*textRequest).readVariant},
		{query.ParameterLeastAccuracy, (*textRequest).readLeastAccuracy},
	}}
	documentBody = object[*textRequest]{name: `an element of "documents"`, required: 1, members: []member[*textRequest]{
		{"text", (*textRequest).addDocument},
	}}
)

// named returns a reader whose errors name a parameter.
func named(parameter string, read func(*textRequest) *query.Error) func(*textRequest) *query.Error {
	return func(r *textRequest) *query.Error {
		if err := read(r); err != nil {
			return err.Of(parameter)
		}
		return nil
	}
}

// optional returns a named reader that takes null as if the member were not there.
func optional(parameter string, read func(*textRequest) *query.Error) func(*textRequest) *query.Error {
	return named(parameter, func(r *textRequest) *query.Error {
		if r.json.peek(); r.json.literal("null") {
			return nil
		}
		return read(r)
	})
}

// str reads a string of any length. The result is a copy.
func (r *textRequest) str(what string) (string, *query.Error) {
	if r.json.peek() != '"' {
		return "", query.Invalid("%s must be a string (byte %d)", what, r.json.i)
	}
	again := r.json
	v, escapes, err := r.json.pass()
	if escapes && err == nil {
		v, err = again.str(make([]byte, 0, len(v)))
	}
	return string(v), err
}

// count reads a number of something, at least 1.
func (r *textRequest) count(what string) (int, *query.Error) {
	n, err := r.json.integer(strconv.Quote(what))
	if err == nil && (n < 1 || n > math.MaxInt32) {
		err = query.Invalid("%q must be at least 1, not %d", what, n)
	}
	return int(n), err
}

func (r *textRequest) readModel() (err *query.Error) {
	if r.model, err = r.str(`"model"`); err != nil {
		return err.Of("model")
	}
	return nil
}

// readInput reads the texts: a string, tokens, or a list of either.
func (r *textRequest) readInput() *query.Error {
	if r.json.peek() == '"' {
		return r.addInput()
	}
	if !r.json.take('[') {
		return errInput
	}
	if c := r.json.peek(); c == '-' || c >= '0' && c <= '9' {
		return r.addTokens()
	}
	return r.json.each(']', func() *query.Error {
		switch r.json.peek() {
		case '"':
			return r.addInput()
		case '[':
			r.json.take('[')
			return r.addTokens()
		}
		return errInput
	})
}

// errInput is returned for an input of another form.
var errInput = query.Invalid(`"input" must be a string, an array of strings, an array of tokens, or an array of arrays of tokens`)

// addInput reads a string as a text.
func (r *textRequest) addInput() *query.Error {
	if len(r.Items) == text.MaxTexts {
		return text.ErrTexts
	}
	v, err := r.str("a text")
	r.Items = append(r.Items, text.Item{Text: v})
	return err
}

// tokenBytes is the memory of a token, which may be one digit and a comma in the request.
const tokenBytes = 8

// addTokens reads an array of tokens whose bracket has been read as a text.
func (r *textRequest) addTokens() *query.Error {
	if len(r.Items) == text.MaxTexts {
		return text.ErrTexts
	}
	ids := []int64{}
	err := r.json.each(']', func() *query.Error {
		id, err := r.json.integer("a token")
		if len(ids) == cap(ids) && err == nil {
			more := max(len(ids), 64)
			if !r.memory.Take(int64(more) * tokenBytes) {
				return query.ErrBodyMemory
			}
			r.held += int64(more) * tokenBytes
			ids = slices.Grow(ids, more)
		}
		ids = append(ids, id)
		return err
	})
	if err == nil && len(ids) == 0 {
		err = query.Invalid("an array of tokens is empty")
	}
	r.Items = append(r.Items, text.Item{IDs: ids})
	return err
}

func (r *textRequest) readFormat() *query.Error {
	format, err := r.str(`"encoding_format"`)
	switch {
	case err != nil:
		return err
	case format != "float" && format != "base64":
		return query.Invalid(`"encoding_format" must be "float" or "base64", not %q`, query.Cut(format))
	}
	r.base64 = format == "base64"
	return nil
}

func (r *textRequest) readDimensions() (err *query.Error) {
	r.dimensions, err = r.count("dimensions")
	return err
}

func (r *textRequest) readQuery() (err *query.Error) {
	r.query, err = r.str(`"query"`)
	return err
}

func (r *textRequest) readDocuments() *query.Error {
	if !r.json.take('[') {
		return query.Invalid(`"documents" must be an array of strings (byte %d)`, r.json.i)
	}
	return r.json.each(']', func() *query.Error {
		if r.json.peek() == '{' {
			return readObject(&r.json, r, &documentBody)
		}
		return r.addDocument()
	})
}

// addDocument reads the text of a document.
func (r *textRequest) addDocument() *query.Error {
	if len(r.documents) == text.MaxTexts {
		return text.ErrTexts
	}
	v, err := r.str("a document")
	r.documents = append(r.documents, v)
	return err
}

func (r *textRequest) readTop() (err *query.Error) {
	r.top, err = r.count("top_n")
	return err
}

func (r *textRequest) readEcho() (err *query.Error) {
	r.echo, err = r.json.boolean(`"return_documents"`)
	return err
}

func (r *textRequest) readParameters() *query.Error { return readObject(&r.json, r, &textParameters) }

func (r *textRequest) readTimeout() (err *query.Error) {
	usec, err := r.json.integer(timeoutName)
	if err == nil {
		r.options.timeout, err = timeoutOf(usec)
	}
	return err
}

func (r *textRequest) readPriority() (err *query.Error) {
	p, err := r.json.integer(priorityName)
	if err == nil {
		r.options.priority, err = priorityOf(p)
	}
	return err
}

func (r *textRequest) readVariant() (err *query.Error) {
	r.options.variant, err = r.str(`the parameter "` + query.ParameterVariant + `"`)
	return err
}

func (r *textRequest) readLeastAccuracy() (err *query.Error) {
	r.options.leastAccuracy, err = r.json.accuracy()
	return err
}

// header reads what the header of a request asks for.
func (r *textRequest) header(ctx *fasthttp.RequestCtx) *query.Error {
	v := ctx.Request.Header.Peek(headerTimeout)
	if len(v) == 0 {
		return nil
	}
	usec, failed := strconv.ParseInt(strings.TrimSpace(string(v)), 10, 64)
	if failed != nil {
		return query.Invalid("the header %s must be a number of microseconds, not %q", headerTimeout, query.Cut(v)).Of(headerTimeout)
	}
	timeout, err := timeoutOf(usec)
	if r.options.timeout == 0 || timeout > 0 && timeout < r.options.timeout {
		r.options.timeout = timeout
	}
	return err
}

// checkEmbeddings checks the texts of a request for embeddings.
func (r *textRequest) checkEmbeddings() *query.Error {
	if len(r.Items) == 0 {
		return query.Invalid(`"input" is empty: send a text at least`).Of("input")
	}
	return nil
}

// checkRerank makes a pair of the query and each document.
func (r *textRequest) checkRerank() *query.Error {
	if len(r.documents) == 0 {
		return query.Invalid(`"documents" is empty: send a document at least`).Of("documents")
	}
	for i := range r.documents {
		r.Items = append(r.Items, text.Item{Text: r.query, Pair: &r.documents[i]})
	}
	return nil
}

// Upper bounds in bytes of the JSON around all results, around one, and of a number.
const (
	textHeadBytes   = 256
	textResultBytes = 96
	base64Part      = 3
)

// embeddingsBytes returns a bound on the size of an answer.
func embeddingsBytes(r *textRequest, a *text.Answer) int64 {
	size := int64(textHeadBytes + len(r.Service.Name))
	for _, row := range a.Rows {
		bytes := int64(models.Float32.Bytes() * len(row))
		if r.base64 {
			size += textResultBytes + 4*(bytes+base64Part-1)/base64Part
		} else {
			size += textResultBytes + textBytes(models.Float32, bytes)
		}
	}
	return size
}

// appendEmbeddings appends the answer to a request for embeddings.
func appendEmbeddings(b []byte, r *textRequest, a *text.Answer) ([]byte, *query.Error) {
	var data []byte
	b = append(b, `{"object":"list","data":[`...)
	for i, row := range a.Rows {
		if r.dimensions > len(row) {
			return nil, query.Invalid(`"dimensions" is %d, but the embeddings of the model have %d`, r.dimensions, len(row)).Of("dimensions")
		}
		if r.dimensions > 0 && r.dimensions < len(row) {
			if row = row[:r.dimensions]; r.Service.Text.Normalize {
				text.Normalize(row)
			}
		}
		data = data[:0]
		for _, v := range row {
			data = binary.LittleEndian.AppendUint32(data, math.Float32bits(v))
		}
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(append(b, `{"object":"embedding","index":`...), int64(i), 10)
		b = append(b, `,"embedding":`...)
		if r.base64 {
			b = append(base64.StdEncoding.AppendEncode(append(b, '"'), data), `"}`...)
			continue
		}
		var ok bool
		if b, ok = appendElements(append(b, '['), models.Float32, data); !ok {
			return nil, errNotJSON("embedding")
		}
		b = append(b, `]}`...)
	}
	b = appendString(append(b, `],"model":`...), r.Service.Name)
	return append(appendUsage(b, a.Tokens), '}'), nil
}

// appendUsage appends the number of tokens in OpenAI's form.
func appendUsage(b []byte, tokens int) []byte {
	b = strconv.AppendInt(append(b, `,"usage":{"prompt_tokens":`...), int64(tokens), 10)
	return append(strconv.AppendInt(append(b, `,"total_tokens":`...), int64(tokens), 10), '}')
}

// rerankBytes returns a bound on the size of an answer. A document can grow sixfold when each
// of its bytes becomes a \u escape.
func rerankBytes(r *textRequest, _ *text.Answer) int64 {
	size := int64(textHeadBytes + len(r.Service.Name))
	for _, document := range r.documents {
		if size += textResultBytes; r.echo {
			size += 6 * int64(len(document))
		}
	}
	return size
}

// appendRerank appends the answer to a request for scores, the highest first.
func appendRerank(b []byte, r *textRequest, a *text.Answer) ([]byte, *query.Error) {
	type result struct {
		index int
		score float64
	}
	results := make([]result, len(a.Rows))
	for i, row := range a.Rows {
		score, err := text.Relevance(row)
		switch {
		case err != nil:
			return nil, err
		case math.IsNaN(score):
			return nil, errNotJSON("relevance_score")
		}
		results[i] = result{i, score}
	}
	slices.SortStableFunc(results, func(x, y result) int { return cmp.Compare(y.score, x.score) })
	if r.top > 0 {
		results = results[:min(r.top, len(results))]
	}
	b = appendString(append(b, `{"object":"list","model":`...), r.Service.Name)
	b = append(b, `,"results":[`...)
	for i, x := range results {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(append(b, `{"index":`...), int64(x.index), 10)
		b = strconv.AppendFloat(append(b, `,"relevance_score":`...), x.score, 'g', -1, 64)
		if r.echo {
			b = append(appendString(append(b, `,"document":{"text":`...), r.documents[x.index]), '}')
		}
		b = append(b, '}')
	}
	return append(appendUsage(append(b, ']'), a.Tokens), '}'), nil
}
