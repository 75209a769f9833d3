package segments

import (
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/overlapd/overlapd/models/zoo"
	"github.com/overlapd/overlapd/segments/worker"
)

// zooVariable set to "all" makes TestZoo build and run every model of the zoo,
// which takes minutes and gigabytes.
const zooVariable = "OVERLAPD_TEST_ZOO"

// TestZoo compares models of the zoo, cut at every node, with the whole.
func TestZoo(t *testing.T) {
	names := list("tiny_add", "tiny_identity", "tiny_mlp", "tiny_cnn", "tiny_bert")
	switch {
	case os.Getenv(zooVariable) == "all":
		names = zoo.Names()
	case !testing.Short() && !raceEnabled:
		names = append(names, "resnet50", "resnet50-fp16", "bert", "bert-fp16")
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			lengths := []int64{16}
			if strings.Contains(name, "bert") {
				lengths = []int64{16, 64}
			}
			compareZoo(t, name, lengths)
		})
	}
}

func compareZoo(t *testing.T, name string, lengths []int64) {
	env := openEnv(t)
	path := openZoo(t, name)
	m, w := openCut(t, env, Config{Path: path, OneThread: true}), openWhole(t, env, path)
	t.Logf("%d operators", len(m.Model().Operators))
	for _, size := range []int64{1, 3} {
		for _, length := range lengths {
			q := randomQuery(t, m.Model(), size, length, rand.New(rand.NewPCG(1, 1)))
			want, err := w.run([]worker.Query{q})
			if err != nil {
				t.Fatal(err)
			}
			for run := range 4 {
				m.one = run%2 == 1
				got, err := runAll(m, 1, q)
				if err == nil {
					err = compare(got, want)
				}
				if err != nil {
					t.Errorf("batch %d, length %d, run %d: %v", size, length, run, err)
				}
			}
			thaw(q)
		}
	}
	for _, entry := range m.layouts {
		for _, pc := range m.cut.pieces {
			for _, id := range pc.outputs {
				if entry.buffer[id] < 0 {
					t.Errorf("%s has no place in memory", m.cut.values.Names[id])
				}
			}
		}
	}
}
