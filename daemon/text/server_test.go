package text

import (
	"context"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/text/export"
)

func TestMain(m *testing.M) {
	code := m.Run()
	if folder := folder(); code == 0 {
		os.RemoveAll(folder)
	}
	goleak.VerifyTestMain(exit(code))
}

// exit is the status of tests that have run.
type exit int

func (e exit) Run() int { return int(e) }

// ask answers a request, or fails the test.
func (f *fake) ask(r *Request) *Answer {
	f.t.Helper()
	a, err := f.server().Answer(f.t.Context(), r)
	if err != nil {
		f.t.Fatal(err.Message)
	}
	f.t.Cleanup(a.Release)
	return a
}

// tokens returns the IDs of a text, special tokens included.
func tokens(t *testing.T, text *export.Text, of string, limit int) (ids []float64) {
	t.Helper()
	e, err := text.Tokenizer.Encode(t.Context(), of, nil, limit)
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range e.IDs {
		ids = append(ids, float64(id))
	}
	return ids
}

func near(a []float32, b ...float64) bool {
	return slices.EqualFunc(a, b, func(x float32, y float64) bool { return math.Abs(float64(x)-y) <= 1e-6*max(1, math.Abs(y)) })
}

// Padding must not count, whatever the pooling.
func TestPoolings(t *testing.T) {
	const sentence = "the fox jumps"
	ids := tokens(t, textOf(t, "mean", "no"), sentence, 100)
	sum, n := 0.0, float64(len(ids))
	for _, id := range ids {
		sum += id
	}
	last := ids[len(ids)-1]
	length := math.Sqrt(sum/n*sum/n + 1)
	for name, test := range map[string]struct {
		pooling, normalize string
		want               []float64
	}{
		"mean": {"mean", "no", []float64{sum / n, 1, 0}}, "cls": {"cls", "no", []float64{ids[0], 1, 0}}, "last": {"last", "no", []float64{last, 1, 0}},
		"normalized": {"mean", "yes", []float64{sum / n / length, 1 / length, 0}}, "as exported": {"auto", "auto", []float64{sum / n / length, 1 / length, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			a := newFake(t, textOf(t, test.pooling, test.normalize, 64)).askOne(sentence)
			if !near(a.Rows[0], test.want...) || a.Tokens != len(ids) || a.Cut != 0 {
				t.Errorf("%v with %d tokens, %d cut, want %v", a.Rows[0], a.Tokens, a.Cut, test.want)
			}
		})
	}
	f := newFake(t, textOf(t, "none", "no"))
	if a := f.askOne(sentence); !near(a.Rows[0], sum) {
		t.Errorf("the model's own output is %v, want %v", a.Rows[0], sum)
	}
}

func (f *fake) askOne(text string) *Answer {
	f.t.Helper()
	return f.ask(f.request(text))
}

// Outputs of all types of floating-point numbers become the same embedding.
func TestOutputTypes(t *testing.T) {
	for _, elem := range []models.DataType{models.Float32, models.Float64, models.Float16, models.BFloat16} {
		f := newFake(t, textOf(t, "cls", "no"))
		f.serve(1, f.service.Text, query.Info{Inputs: ports("input_ids", "attention_mask"), Outputs: outputs(elem)})
		if a := f.askOne("a"); !near(a.Rows[0], 2, 1, 0) { // [CLS] is 2
			t.Errorf("%v: got %v", elem, a.Rows[0])
		}
	}
}

// Sequences have the lengths that are measured, and are truncated at the largest; a pair has
// two types.
func TestLengths(t *testing.T) {
	f := newFake(t, textOf(t, "mean", "no", 4, 8))
	a := f.ask(f.request("a", strings.Repeat("a ", 100), "a b c d", "a b"))
	slices.Sort(f.lengths)
	if want := []int{4, 4, 8, 8}; !slices.Equal(f.lengths, want) || a.Cut != 1 || a.Tokens != 3+8+6+4 {
		t.Errorf("lengths %v, want %v; %d cut, %d tokens", f.lengths, want, a.Cut, a.Tokens)
	}
	r, second := f.request("a"), "b b b"
	r.Items[0].Pair = &second
	f.service.Text = textOf(t, "last", "no")
	if a := f.ask(r); !near(a.Rows[0], 3, 1, 1) || a.Tokens != 7 { // [SEP] is 3
		t.Errorf("%v with %d tokens", a.Rows[0], a.Tokens)
	}
}

// A model with one length gets it, and nothing longer.
func TestFixedLength(t *testing.T) {
	f := newFake(t, textOf(t, "mean", "no", 4, 64))
	inputs := ports("input_ids", "attention_mask", "position_ids")
	for i := range inputs {
		inputs[i].Type.Shape[1] = models.Dim{Value: 6}
	}
	out := outputs(models.Float32)
	f.serve(1, f.service.Text, query.Info{Inputs: inputs, Outputs: out})
	f.service.MaxSeqLen = 0
	a, err := f.server().Answer(t.Context(), f.request("a", "a b c d e f g"))
	if err != nil {
		t.Fatal(err)
	}
	defer a.Release()
	if a.Cut != 1 || a.Tokens != 3+6 {
		t.Errorf("%d cut, %d tokens", a.Cut, a.Tokens)
	}
}

// Tokens go to the model as they are.
func TestTokens(t *testing.T) {
	f := newFake(t, textOf(t, "mean", "no", 4))
	r := f.request("")
	r.Items = []Item{{IDs: []int64{7, 9}}, {IDs: []int64{1, 2, 3, 4, 5}}}
	if a := f.ask(r); !near(a.Rows[0], 8, 1, 0) || !near(a.Rows[1], 2.5, 1, 0) || a.Tokens != 6 || a.Cut != 1 {
		t.Errorf("%v, %d tokens, %d cut", a.Rows, a.Tokens, a.Cut)
	}
	for _, bad := range [][]int64{{-1}, {f.service.Text.Vocabulary}, {math.MaxInt64}} {
		r.Items = []Item{{IDs: []int64{1}}, {IDs: bad}}
		if _, err := f.server().Answer(t.Context(), r); err == nil || err.Reason != query.ReasonInvalid || err.Parameter != "input" {
			t.Errorf("tokens %v: %v", bad, err)
		}
	}
}

// A request takes half of the queue at most, and more texts than that are answered in turn.
func TestQueueShare(t *testing.T) {
	f := newFake(t, textOf(t, "mean", "no", 8))
	f.hold = true
	r := f.request(slices.Repeat([]string{"a b"}, 10)...)
	done := make(chan *Answer)
	go func() { done <- f.ask(r) }()
	for left := 10; left > 0; left-- {
		f.waitHeld(min(left, 4))
		f.answerHeld(nil)
	}
	a := <-done
	if f.mostOpen != 4 || len(a.Rows) != 10 || slices.ContainsFunc(a.Rows, func(row []float32) bool { return len(row) != 3 }) {
		t.Errorf("%d queries at a time, rows %v", f.mostOpen, a.Rows)
	}
}

// The first failure is that of the request, and takes the other queries back.
func TestTogetherOrNotAtAll(t *testing.T) {
	f := newFake(t, textOf(t, "mean", "no", 8))
	f.hold = true
	failed := make(chan *query.Error)
	go func() {
		_, err := f.server().Answer(t.Context(), f.request("a", "b", "c", "d", "e", "f"))
		failed <- err
	}()
	f.waitHeld(4)
	f.answerHeld(query.Unavailable(query.ReasonCannotFinish, "too late"))
	if err := <-failed; err.Reason != query.ReasonCannotFinish || f.cancelled != 3 || len(f.lengths) != 4 {
		t.Errorf("%v, %d cancelled of %d", err, f.cancelled, len(f.lengths))
	}
}

// A client that leaves takes its queries back.
func TestClientLeaves(t *testing.T) {
	f := newFake(t, textOf(t, "mean", "no", 8))
	f.hold = true
	ctx, leave := context.WithCancel(t.Context())
	failed := make(chan *query.Error)
	for _, n := range []int{1, 3} {
		go func() {
			_, err := f.server().Answer(ctx, f.request(slices.Repeat([]string{"a"}, n)...))
			failed <- err
		}()
	}
	f.waitHeld(4)
	leave()
	for range 2 {
		if err := <-failed; err == nil || err.Reason != query.ReasonCancelled {
			t.Error(err)
		}
	}
	if _, err := f.server().Answer(ctx, f.request("a")); err == nil || err.Reason != query.ReasonCancelled {
		t.Errorf("after it has left: %v", err)
	}
}

// Waiting for a place to tokenize ends at the deadline.
func TestDeadlineOfTokenizing(t *testing.T) {
	text := textOf(t, "mean", "no", 8)
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, text)
		s := f.server()
		for range cap(s.long) {
			s.long <- struct{}{}
		}
		a, err := s.Answer(t.Context(), f.request("a"))
		if err != nil {
			t.Fatalf("a short text waits for a long one: %v", err)
		}
		a.Release()
		r := f.request("a", strings.Repeat("a ", longBytes))
		r.Options = timeout(time.Minute)
		began := time.Now()
		if _, err := s.Answer(t.Context(), r); err == nil || err.Reason != query.ReasonDeadline || time.Since(began) > patience {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
	})
}

// Much text is tokenized with all processors, and little is not.
func TestBroaden(t *testing.T) {
	f := newFake(t, textOf(t, "mean", "no", 8))
	broad, calls := 0, 0
	s := New(&query.Server{Host: f}, func() func() { broad, calls = broad+1, calls+1; return func() { broad-- } })
	long := strings.Repeat("a ", broadBytes)
	for name, c := range map[string]struct {
		texts []string
		want  int
	}{
		"few": {[]string{"a", "b"}, 0}, "one that is truncated": {[]string{long}, 0}, "many": {slices.Repeat([]string{long}, broadBytes/(8*wordBytes)), 1},
	} {
		calls = 0
		a, err := s.Answer(t.Context(), f.request(c.texts...))
		if err != nil {
			t.Fatal(err)
		}
		a.Release()
		if calls != c.want || broad != 0 {
			t.Errorf("%s: broadened %d times, and still by %d", name, calls, broad)
		}
	}
}

// A service that another model replaces meanwhile answers with one of the two.
func TestReplaced(t *testing.T) {
	f := newFake(t, textOf(t, "mean", "no", 8))
	r := f.request("a")
	old := f.service
	f.serve(2, textOf(t, "cls", "no", 8), old.Signature().Info)
	old.Retired.Store(true)
	if a := f.ask(r); !near(a.Rows[0], 2, 1, 0) {
		t.Errorf("got %v", a.Rows[0])
	}
	r = f.request("a")
	f.service.Text = nil
	r.Service = old
	if _, err := f.server().Answer(t.Context(), r); err == nil {
		t.Error("answered by a service without a tokenizer")
	}
}

// Refused requests say what is wrong with the model.
func TestRefusals(t *testing.T) {
	for name, test := range map[string]struct {
		change func(f *fake, r *Request)
		want   string
	}{
		"no tokenizer": {func(f *fake, _ *Request) { f.service.Text = nil }, "has no tokenizer"},
		"no tokens": {func(f *fake, _ *Request) {
			f.serve(1, f.service.Text, query.Info{Inputs: ports("image"), Outputs: outputs(models.Float32)})
		}, `no input "input_ids"`},
		"another input": {func(f *fake, _ *Request) {
			f.serve(1, f.service.Text, query.Info{Inputs: ports("input_ids", "image"), Outputs: outputs(models.Float32)})
		}, `input "image" of the model cannot be made of text`},
		"another type": {func(f *fake, _ *Request) {
			in := ports("input_ids")
			in[0].Type.Elem = models.Float32
			f.serve(1, f.service.Text, query.Info{Inputs: in, Outputs: outputs(models.Float32)})
		}, "must be INT64 or INT32"},
		"no vectors": {func(f *fake, _ *Request) {
			f.serve(1, f.service.Text, query.Info{Inputs: ports("input_ids"), Outputs: outputs(models.Int64)})
		}, `pooling is "mean"`},
		"no embedding": {func(f *fake, _ *Request) {
			f.serve(1, textOf(f.t, "none", "no"), query.Info{Inputs: ports("input_ids"), Outputs: outputs(models.Float32)[:1]})
		}, `pooling is "none"`},
		"no scores": {func(f *fake, r *Request) {
			f.serve(1, f.service.Text, query.Info{Inputs: ports("input_ids"), Outputs: outputs(models.Float32)[:1]})
			r.Raw = true
		}, "ask a reranker or a classifier"},
		"no memory": {func(f *fake, r *Request) { r.Memory = query.NewBudget(8) }, "limits.memory_bytes"},
		"not ready": {func(f *fake, r *Request) {
			f.service = query.NewService(3, "enc")
			f.service.Text = textOf(f.t, "mean", "no")
		}, "not ready"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t, textOf(t, "mean", "no", 8))
			r := f.request("a", "b")
			test.change(f, r)
			r.Service = f.service
			_, err := f.server().Answer(t.Context(), r)
			if err == nil || !strings.Contains(err.Message, test.want) {
				t.Errorf("%v, want %q", err, test.want)
			}
		})
	}
}

func TestRelevance(t *testing.T) {
	if v, err := Relevance([]float32{0}); v != 0.5 || err != nil {
		t.Error(v, err)
	}
	if v, err := Relevance([]float32{-800}); v < 0 || err != nil {
		t.Error(v, err)
	}
	if _, err := Relevance([]float32{1, 2}); err == nil {
		t.Error("two scores are a relevance")
	}
	row := []float32{0, 0}
	if Normalize(row); row[0] != 0 {
		t.Error(row)
	}
}
