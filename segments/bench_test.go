package segments

import (
	"bytes"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"

	"github.com/overlapd/overlapd/ort"
)

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
			m.pool.options = c.layout
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
