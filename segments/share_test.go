package segments

import (
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/ort"
)

// wide is a model of some products by large matrices, between which it adds large
// vectors: weights that ONNX Runtime packs, and weights that it takes as they are.
func wide(t *testing.T, side, layers int) string {
	g := newGraph()
	at := g.input("x", models.Float32, open, int64(side))
	r := rand.New(rand.NewPCG(1, 1))
	floats := func(n int) []float32 {
		values := make([]float32, n)
		for i := range values {
			values[i] = r.Float32() - 0.5
		}
		return values
	}
	for i := range layers {
		n := strconv.Itoa(i)
		w := g.floats("w"+n, []int64{int64(side), int64(side)}, floats(side*side)...)
		at = g.node("MatMul", list(at, w), list("m"+n))
		at = g.node("Div", list(at, g.floats("d"+n, []int64{int64(side), int64(side)}, floats(side*side)...)), list("y"+n))
	}
	g.output(at, models.Float32)
	return g.write(t)
}

// cpuNanos is what the threads of this process have computed, and what the calling one has.
func cpuNanos(t *testing.T) (all, mine int64) {
	for who, nanos := range map[int]*int64{unix.RUSAGE_SELF: &all, unix.RUSAGE_THREAD: &mine} {
		var u unix.Rusage
		if err := unix.Getrusage(who, &u); err != nil {
			t.Fatal(err)
		}
		*nanos = u.Utime.Nano() + u.Stime.Nano()
	}
	return all, mine
}

// TestOneThread counts who computes: the calling thread alone, or the pool's too.
func TestOneThread(t *testing.T) {
	env := openEnvWith(t, ort.EnvOptions{IntraThreads: 4})
	m := openCut(t, env, Config{Path: wide(t, 256, 2), Units: 4})
	q := randomQuery(t, m.Model(), 256, 0, rand.New(rand.NewPCG(1, 1)))
	defer thaw(q)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	others := func(share int) float64 {
		all, mine := cpuNanos(t)
		for range 50 {
			if _, err := runShare(m, 1, share, q); err != nil {
				t.Fatal(err)
			}
		}
		allAfter, mineAfter := cpuNanos(t)
		return 1 - float64(mineAfter-mine)/float64(allAfter-all)
	}
	others(0)
	if part := others(1); part > 0.1 {
		t.Errorf("%.0f %% of the work was done by other threads than the one", 100*part)
	}
	for end := time.Now().Add(20 * time.Second); ; { // a host that is busy lets the one do more
		if part := others(0); part >= 0.2 {
			return
		} else if time.Now().After(end) {
			t.Fatalf("%.0f %% of the work was done by other threads than one of four", 100*part)
		}
	}
}

// resident returns the memory of the process that no file holds, in bytes.
func resident(t *testing.T, env *ort.Env) int64 {
	debug.FreeOSMemory()
	env.Trim()
	return anonymous(t)
}

// TestWeightsAreHeldOnce has sessions for one thread cost no second copy of the weights,
// neither of those that ONNX Runtime packs nor of the others.
func TestWeightsAreHeldOnce(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector has memory of its own")
	}
	const side, layers = 1024, 4
	const weights = 2 * layers * side * side * 4
	env, path, cache := openEnv(t), wide(t, side, layers), t.TempDir()
	openCut(t, env, Config{Path: path, CacheDir: cache}) // optimizes
	before := resident(t, env)
	openCut(t, env, Config{Path: path, CacheDir: cache, Units: 2})
	if took := resident(t, env) - before; took < weights/2 || took > weights*5/4 {
		t.Errorf("%d MiB of weights take %d MiB", weights>>20, took>>20)
	}
}
