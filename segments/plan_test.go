package segments

import (
	"math/rand/v2"
	"testing"
)

// TestLiveBytes holds what is learned of a model against its liveness.
func TestLiveBytes(t *testing.T) {
	env := openEnv(t)
	for _, name := range list("tiny_cnn", "tiny_bert", "tiny_add") {
		for _, target := range []int{0, 3} {
			m := openCut(t, env, Config{Path: openZoo(t, name), Target: target})
			if m.Model().Operators[0].LiveBytes != -1 {
				t.Errorf("%s: live bytes are known before the first run", name)
			}
			q := randomQuery(t, m.Model(), 1, 16, rand.New(rand.NewPCG(1, 1)))
			defer thaw(q)
			if _, err := runAll(m, 1, q); err != nil {
				t.Fatal(err)
			}
			checkLiveBytes(t, name, m)
		}
	}
}

func checkLiveBytes(t *testing.T, name string, m *CutModel) {
	t.Helper()
	for _, entry := range m.pool.layouts {
		for p, op := range m.Model().Operators {
			var want int64
			for id, producer := range m.loaded.cut.values.Producer {
				if at := int32(m.loaded.cut.pieces[p].last); producer >= 0 && producer < at && m.loaded.cut.values.LastUse[id] >= at {
					want += entry.shapes[id].bytes
				}
			}
			if op.LiveBytes != want || want == 0 {
				t.Errorf("%s: %d bytes alive after operator %d, expected %d", name, op.LiveBytes, p, want)
			}
		}
	}
}

// TestLayoutReusesMemory compares a plan with one that does not reuse.
func TestLayoutReusesMemory(t *testing.T) {
	env := openEnv(t)
	path := openZoo(t, "tiny_bert")
	var bytes [3]int64
	for i, options := range []layoutOptions{{inPlace: true}, {}, {inPlace: true, noReuse: true}} {
		m := openCut(t, env, Config{Path: path})
		m.pool.options = options
		q := randomQuery(t, m.Model(), 2, 16, rand.New(rand.NewPCG(1, 1)))
		defer thaw(q)
		if _, err := runAll(m, 1, q); err != nil {
			t.Fatal(err)
		}
		for _, entry := range m.pool.layouts {
			bytes[i] = entry.bytes
		}
	}
	if bytes[0] == 0 || max(bytes[0], bytes[1])*3 > bytes[2] {
		t.Errorf("%d bytes with everything, %d without sharing, %d without reuse", bytes[0], bytes[1], bytes[2])
	}
}
