package executor

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/overlapd/overlapd/internal/stats"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/models/zoo"
	"github.com/overlapd/overlapd/ort"
	"github.com/overlapd/overlapd/segments/wire"
)

// realPool is a pool of two workers that run a model of the zoo with ONNX Runtime.
func realPool(t testing.TB, path string) (one, other *fixture, info *wire.Info) {
	t.Helper()
	if _, err := ort.Find(); errors.Is(err, ort.ErrNotFound) {
		t.Skip(err)
	}
	const memory = 256 << 20
	moves, err := wire.NewMoveArena(memory)
	if err != nil {
		t.Fatal(err)
	}
	inputs, err := wire.NewInputArena(memory, false)
	if err != nil {
		t.Fatal(err)
	}
	outcomes, cache := make(chan Outcome, 2*MaxOutcomes), t.TempDir()
	open := func() *fixture {
		f := start(t, func(o *Options) {
			s := &o.Services[0]
			s.Inputs, s.Moves, o.Outcomes, s.OutputBytes = inputs, moves, outcomes, memory
			s.Env = append(os.Environ(), roleEngine)
			s.Load.CacheDir, s.Load.Threads, s.Load.MaxBatch = cache, 1, 2
		}, path)
		info = awaitEvent(f, WorkerReady, nil).Info
		return f
	}
	one, other = open(), open()
	t.Cleanup(func() {
		endBoth(t, one, other)
		if n, err := moves.Close(); n != 0 || err != nil {
			t.Errorf("%d blocks are left: %v", n, err)
		}
	})
	return one, other, info
}

// tensors puts made-up inputs of a query of this batch size into the arena.
func (f *fixture) tensors(info *wire.Info, id models.QueryID, size int) wire.QueryTensors {
	f.t.Helper()
	q := wire.QueryTensors{ID: id}
	for i, shape := range models.Fill(info.Inputs, size, 16) {
		n, _ := models.Elements(shape)
		elem := info.Inputs[i].Type.Elem
		offset, data, err := f.Arena(0).Alloc(n * int64(elem.Bytes()))
		if err != nil {
			f.t.Fatal(err)
		}
		f.t.Cleanup(func() { f.Arena(0).Free(offset) })
		for j := range data { // floats below 2, or integers of 0 and 1
			switch {
			case elem == models.Float32 && j%4 == 3:
				data[j] = 0x3e
			case elem == models.Float32:
				data[j] = byte(j * 37)
			case j%elem.Bytes() == 0:
				data[j] = byte(j/elem.Bytes()+int(id)) % 2
			}
		}
		q.Inputs = append(q.Inputs, models.Tensor{Type: elem, Shape: shape, Offset: offset, Bytes: int64(len(data))})
	}
	return q
}

// bytesOf returns the outputs of a batch and releases them.
func bytesOf(s SpanOutcome) (all [][]byte) {
	for i := range s.Queries {
		for _, o := range s.Queries[i].Outputs {
			all = append(all, slices.Clone(o.Data))
		}
		s.Queries[i].Release()
	}
	return all
}

// Between processes that run models with ONNX Runtime a batch moves at any operator, and at
// two of them, and its outputs are those of one that stayed, to the bit.
func TestMovesOfModels(t *testing.T) {
	for _, name := range []string{"tiny_mlp", "tiny_cnn", "tiny_bert"} {
		t.Run(name, func(t *testing.T) {
			path, err := zoo.Build(name, t.TempDir(), 1, nil)
			if err != nil {
				t.Fatal(err)
			}
			one, other, info := realPool(t, path)
			end := len(info.Operators)
			batch := models.BatchID(0)
			for _, sizes := range [][]int{{1}, {2, 1}} {
				var queries []wire.QueryTensors
				total := 0
				for i, size := range sizes {
					queries = append(queries, one.tensors(info, models.QueryID(i), size))
					total += size
				}
				batch++
				whole := SpanRequest{Span: models.Span{Batch: batch, End: end, Size: total}, Queries: queries}
				stayed := one.do(whole)
				want := bytesOf(stayed)
				if stayed.Status != models.SpanDone || len(want) == 0 {
					t.Fatalf("%+v", stayed)
				}
				for at := 1; at < end; at++ {
					for _, back := range []int{end, (at + end) / 2} {
						batch++
						if got := through(t, []*fixture{one, other, one}, whole, batch, []int{at, max(back, at+1), end}); fmt.Sprint(got) != fmt.Sprint(want) {
							t.Errorf("%v at operators %d and %d: %x, want %x", sizes, at, back, got, want)
						}
					}
				}
			}
		})
	}
}

// through runs a batch on several workers, on each up to an operator, and returns its
// outputs.
func through(t testing.TB, on []*fixture, r SpanRequest, batch models.BatchID, ends []int) [][]byte {
	t.Helper()
	queries := r.Queries
	r.Span.Batch, r.Span.Start = batch, 0
	for i, end := range ends {
		r.Span.End = end
		s := on[i].do(r)
		if s.Status != models.SpanDone {
			t.Fatalf("%+v: %v", s, s.Err)
		}
		if s.Finished {
			return bytesOf(s)
		}
		r.Span.Start, r.Queries = end, queries
		if err := Move(moveRound, on[i].Executor, on[i+1].Executor, r, 0); err != nil {
			t.Fatal(err)
		}
		if o := on[i].receive(); !o.Moved || o.Spans[0].Status != models.SpanDone {
			t.Fatalf("%+v: %v", o, o.Spans[0].Err)
		}
		r.Queries = nil
	}
	t.Fatal("it did not finish")
	return nil
}

// BenchmarkMove moves what resnet50 has after its first operators back and forth between two
// processes, beside plain copies of as many bytes.
func BenchmarkMove(b *testing.B) {
	path, err := zoo.Build("resnet50", b.TempDir(), 1, nil)
	if err != nil {
		b.Fatal(err)
	}
	for _, c := range []struct{ size, at int }{{1, 2}, {3, 1}, {31, 1}} {
		b.Run(fmt.Sprintf("batch=%d/operator=%d", c.size, c.at), func(b *testing.B) {
			one, other, info := realPool(b, path)
			r := SpanRequest{Span: models.Span{Batch: 1, End: c.at, Size: c.size}, Queries: []wire.QueryTensors{one.tensors(info, 1, c.size)}}
			if s := one.do(r); s.Status != models.SpanDone {
				b.Fatal(s.Err)
			}
			r.Span.Start, r.Span.End = c.at, c.at+1
			sides, memory := []*fixture{one, other}, one.service(0).spec.Moves
			var src, dst []byte
			var moves, copies []time.Duration
			for b.Loop() {
				if err := Move(moveRound, sides[0].Executor, sides[1].Executor, r, 0); err != nil {
					b.Fatal(err)
				}
				o := one.receive()
				if o.Spans[0].Status != models.SpanDone {
					b.Fatal(o.Spans[0].Err)
				}
				if slices.Reverse(sides); src == nil {
					src, dst = make([]byte, memory.Used()), make([]byte, memory.Used())
				}
				begin := time.Now()
				copy(dst, src)
				moves, copies = append(moves, o.Took), append(copies, time.Since(begin))
			}
			move, plain := stats.Median(moves), stats.Median(copies)
			b.ReportMetric(float64(len(src))/1e6, "MB")
			b.ReportMetric(float64(move.Microseconds()), "µs/move")
			b.ReportMetric(float64(plain.Microseconds()), "µs/copy")
			b.ReportMetric(float64(len(src))/float64(move), "GB/s")
			sides[0].Release(0, 1)
		})
	}
}
