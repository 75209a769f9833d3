package segments

import (
	"bytes"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/ort"
	"github.com/overlapd/overlapd/segments/worker"
)

// BenchmarkSpan runs a tiny model one operator at a time: what a span costs
// beside the work of its operators.
func BenchmarkSpan(b *testing.B) {
	m, _ := openTiny(b, "tiny_mlp", Config{})
	q := queryOf(b, m, 1, 0)
	if _, err := runAll(m, 1, q); err != nil {
		b.Fatal(err)
	}
	if err := m.Start(1, []worker.Query{q}); err != nil {
		b.Fatal(err)
	}
	defer m.Release(1)
	batch := m.batches[1]
	b.ReportAllocs()
	for b.Loop() {
		batch.next = 0
		for p := range m.sessions {
			if _, err := m.Run(1, p, p+1, nil); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(m.sessions)), "ns/operator")
}

// BenchmarkBatch starts, runs and finishes whole batches of a tiny model.
func BenchmarkBatch(b *testing.B) {
	m, _ := openTiny(b, "tiny_mlp", Config{})
	q := queryOf(b, m, 1, 0)
	room := make([]byte, 1<<16)
	out := func(_, _ int, _ models.DataType, _ []int64, n int64) ([]byte, error) { return room[:n], nil }
	b.ReportAllocs()
	for b.Loop() {
		if err := m.Start(1, []worker.Query{q}); err != nil {
			b.Fatal(err)
		}
		if _, err := m.Run(1, 0, len(m.sessions), nil); err != nil {
			b.Fatal(err)
		}
		if err := m.Finish(1, out); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkConditions takes away, one by one, what makes cutting at every node
// cheap. resident-MB is what the process gained from before the model was
// loaded until it has run; it is right only for a condition that runs in a
// process of its own, as the runtime keeps what it has freed.
func BenchmarkConditions(b *testing.B) {
	const batch = 8
	threads := 2
	for _, c := range []struct {
		name   string
		layout layoutOptions
	}{
		{name: "all", layout: layoutOptions{inPlace: true}},
		{name: "no-reuse", layout: layoutOptions{inPlace: true, noReuse: true}},
		{name: "no-in-place"},
	} {
		b.Run(c.name, func(b *testing.B) {
			env := openEnvWith(b, ort.EnvOptions{IntraThreads: threads})
			path := openZoo(b, "resnet50")
			before := residentBytes(b)
			m := openCut(b, env, Config{Path: path})
			m.layoutOptions = c.layout
			q := randomQuery(b, m.Model(), batch, 0, rand.New(rand.NewPCG(1, 1)))
			defer thaw(q)
			if _, err := runAll(m, 1, q); err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				if _, err := runAll(m, 1, q); err != nil {
					b.Fatal(err)
				}
			}
			const mega = 1 << 20
			b.ReportMetric(float64(m.IntermediateBytes())/mega, "intermediates-MB")
			b.ReportMetric(float64(residentBytes(b)-before)/mega, "resident-MB")
		})
	}
}

// residentBytes returns the memory of this process that is not backed by
// files.
func residentBytes(b *testing.B) int64 {
	b.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		b.Skip(err)
	}
	_, rest, _ := bytes.Cut(status, []byte("RssAnon:"))
	kilobytes, err := strconv.ParseInt(string(bytes.Fields(rest)[0]), 10, 64)
	if err != nil {
		b.Fatal(err)
	}
	return kilobytes << 10
}
