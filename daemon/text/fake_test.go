package text

import (
	"encoding/binary"
	"math"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/models/zoo"
	"github.com/overlapd/overlapd/text/export"
)

// patience bounds every wait: only what hangs gets there.
const patience = 10 * time.Second

// folder holds the models of the zoo that the tests read tokenizers of.
var folder = sync.OnceValue(func() string {
	dir, err := os.MkdirTemp("", "text")
	if err == nil {
		_, err = zoo.Build("text_encoder", dir, 1, nil)
	}
	if err != nil {
		panic(err)
	}
	return dir
})

// textOf returns the text of zoo:text_encoder with other settings.
func textOf(t testing.TB, pooling, normalize string, lengths ...int) *export.Text {
	t.Helper()
	text, err := export.Read(folder()+"/text_encoder/model.onnx", export.Settings{Pooling: pooling, Normalize: normalize, Lengths: lengths})
	if err != nil || text == nil {
		t.Fatal(text, err)
	}
	return text
}

// fake is the backend and the host of one service. Its model returns for each token the vector
// of its ID, its mask and its type, and for the text the sum of its IDs.
type fake struct {
	t       testing.TB
	service *query.Service
	budget  *query.Budget
	fail    func(c *query.Call) *query.Error // what a query fails with, nil for nothing

	mu        sync.Mutex
	hold      bool
	held      []*query.Call
	lengths   []int // of the queries, in their order
	open      int   // queries that are not released
	mostOpen  int
	memory    int // pieces that are out
	cancelled int
}

func ports(names ...string) (list []models.TensorSpec) {
	for _, name := range names {
		list = append(list, models.TensorSpec{Name: name, Type: models.TensorType(models.Int64, models.Dim{Value: -1}, models.Dim{Value: -1})})
	}
	return list
}

func outputs(elem models.DataType) []models.TensorSpec {
	open := models.Dim{Value: -1}
	return []models.TensorSpec{
		{Name: "last_hidden_state", Type: models.TensorType(elem, open, open, models.Dim{Value: 3})},
		{Name: "sentence_embedding", Type: models.TensorType(elem, open, models.Dim{Value: 1})},
	}
}

func newFake(t testing.TB, text *export.Text) *fake {
	f := &fake{t: t, budget: query.NewBudget(64 << 20)}
	f.serve(1, text, query.Info{Inputs: ports("input_ids", "attention_mask", "token_type_ids"), Outputs: outputs(models.Float32)})
	t.Cleanup(func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.memory != 0 || f.open != 0 || f.budget.Used() != 0 {
			t.Errorf("%d pieces of memory, %d queries and %d bytes are out", f.memory, f.open, f.budget.Used())
		}
	})
	return f
}

// serve publishes a service.
func (f *fake) serve(id models.ServiceID, text *export.Text, info query.Info) {
	f.t.Helper()
	s := query.NewService(id, "enc")
	s.QoSTarget, s.QueueLimit, s.MaxBatch, s.MaxQueryBatch, s.Backend, s.Text = patience, 8, 4, 4, f, text
	if err := s.Loaded(info); err != nil {
		f.t.Fatal(err)
	}
	s.SetReady(true)
	f.service = s
}

// server returns a server in front of the fake.
func (f *fake) server() *Server { return New(&query.Server{Host: f}, nil) }

func (f *fake) Services() []*query.Service    { return []*query.Service{f.service} }
func (f *fake) Service([]byte) *query.Service { return f.service }
func (f *fake) Live() bool                    { return true }
func (f *fake) NotReady() *query.Error        { return nil }

func (f *fake) Alloc(_ *query.Service, n int64) (query.Memory, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.memory++
	return query.Memory{Bytes: make([]byte, n)}, nil
}

func (f *fake) Free(*query.Service, query.Memory) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.memory--
}

func (f *fake) Submit(c *query.Call) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lengths = append(f.lengths, c.SeqLen)
	f.open++
	f.mostOpen = max(f.mostOpen, f.open)
	if f.hold {
		f.held = append(f.held, c)
		return nil
	}
	c.Answer(f.run(c))
	return nil
}

// run returns what the model answers.
func (f *fake) run(c *query.Call) (r query.Reply) {
	if f.fail != nil {
		if r.Err = f.fail(c); r.Err != nil {
			return r
		}
	}
	length := int(c.Inputs[0].Shape[1]) // SeqLen is 0 if the model has only one
	value := func(input, i int) float64 {
		if input >= len(c.Inputs) {
			return 0
		}
		return float64(binary.LittleEndian.Uint64(c.Inputs[input].Data[8*i:]))
	}
	elem := c.Signature.Outputs[0].Type
	hidden := models.Tensor{Type: elem, Shape: []int64{1, int64(length), 3}}
	pooled := models.Tensor{Type: elem, Shape: []int64{1, 1}}
	sum := 0.0
	for i := range length {
		for input := range 3 {
			hidden.Data = appendNumber(hidden.Data, elem, value(input, i))
		}
		sum += value(0, i)
	}
	pooled.Data = appendNumber(nil, elem, sum)
	r.Outputs = []models.Tensor{hidden, pooled}[:len(c.Signature.Outputs)]
	return r
}

func appendNumber(b []byte, elem models.DataType, v float64) []byte {
	switch elem {
	case models.Float16:
		return binary.LittleEndian.AppendUint16(b, models.EncodeFloat16(float32(v)))
	case models.BFloat16:
		return binary.LittleEndian.AppendUint16(b, uint16(math.Float32bits(float32(v))>>16))
	case models.Float64:
		return binary.LittleEndian.AppendUint64(b, math.Float64bits(v))
	case models.Int64:
		return binary.LittleEndian.AppendUint64(b, uint64(v))
	}
	return binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(v)))
}

func (f *fake) Cancel(c *query.Call) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.cancelled++
	for i, held := range f.held {
		if held == c {
			f.held = append(f.held[:i], f.held[i+1:]...)
			c.Answer(query.Reply{Err: query.Unavailable(query.ReasonCancelled, "cancelled")})
			return
		}
	}
}

func (f *fake) Release(*query.Call) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.open--
	f.memory--
}

// answerHeld answers the oldest query that is held.
func (f *fake) answerHeld(fail *query.Error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := f.held[0]
	f.held = f.held[1:]
	if fail != nil {
		c.Answer(query.Reply{Err: fail})
		return
	}
	c.Answer(f.run(c))
}

// waitHeld waits until so many queries are held.
func (f *fake) waitHeld(n int) {
	f.t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(time.Millisecond) {
		f.mu.Lock()
		held := len(f.held)
		f.mu.Unlock()
		if held == n {
			return
		}
	}
	f.t.Fatalf("%d queries are not held", n)
}

// none are no options.
type none struct{}

func (none) Apply(*query.Call) *query.Error { return nil }

// timeout is a timeout as an option.
type timeout time.Duration

func (d timeout) Apply(c *query.Call) *query.Error {
	c.Timeout = time.Duration(d)
	return nil
}

// request returns a request of texts.
func (f *fake) request(texts ...string) *Request {
	r := &Request{Service: f.service, Arrival: time.Now(), Options: none{}, Memory: f.budget}
	for _, text := range texts {
		r.Items = append(r.Items, Item{Text: text})
	}
	return r
}
