package segments

import (
	"errors"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// nothing is a ProgressFunc.
func nothing(string, int64, int64) {}

// stepper loads in a few steps, each of which takes longer than one leave.
func stepper(phases ...string) LoadFunc {
	return func(_ LoadSpec, _ ProgressFunc, step StepFunc) (Engine, error) {
		for i, phase := range phases {
			if err := step(phase, int64(i), int64(len(phases))); err != nil {
				return nil, err
			}
			for begun := time.Now(); time.Since(begun) < stepTime; {
			}
		}
		return newFakeEngine(), nil
	}
}

// A gated worker does each step when it is told to.
func TestGatedLoad(t *testing.T) {
	w := startWorker(t, stepper("a", "b", "c"))
	w.send(&Load{Spec: LoadSpec{Gated: true}})
	for i, phase := range list("a", "b", "c") {
		if ask := expect[*Ask](w); *ask != (Ask{phase, int64(i), 3}) {
			t.Errorf("%+v", ask)
		}
		w.send(&Grant{})
	}
	expect[*Ready](w)
	w.send(&Quit{})
	w.end(nil)
}

// What is done before the first step's time is over needs no further leave.
func TestShortStepsAreOne(t *testing.T) {
	const steps = 1000
	w := startWorker(t, func(_ LoadSpec, _ ProgressFunc, step StepFunc) (Engine, error) {
		for i := range int64(steps) {
			if err := step("load", i, steps); err != nil {
				return nil, err
			}
		}
		return newFakeEngine(), nil
	})
	w.send(&Load{Spec: LoadSpec{Gated: true}})
	asked := 0
	for {
		kind, _, err := w.frames.Next()
		if err != nil {
			t.Fatal(err)
		}
		if kind == KindReady {
			break
		}
		if asked++; kind != KindAsk {
			t.Fatal(kind)
		}
		w.send(&Grant{})
	}
	if asked < 1 || asked > steps/2 {
		t.Errorf("asked %d times for %d steps", asked, steps)
	}
	w.send(&Quit{})
	w.end(nil)
}

// One that is not gated tells how far it is, and waits for nobody.
func TestFreeLoad(t *testing.T) {
	w := startWorker(t, stepper("a", "b"))
	w.send(&Load{})
	for i, phase := range list("a", "b") {
		if p := expect[*Progress](w); *p != (Progress{phase, int64(i), 2}) {
			t.Errorf("%+v", p)
		}
	}
	expect[*Ready](w)
	w.send(&Quit{})
	w.end(nil)
}

// A worker that waits for leave ends with the daemon, and does not take another
// message for leave.
func TestGateEnds(t *testing.T) {
	for name, c := range map[string]struct {
		say  func(*workerTest)
		want error
	}{
		"daemon gone": {func(w *workerTest) { unix.Shutdown(w.socket.fd, unix.SHUT_RDWR) }, ErrNoLeave},
		"quit":        {func(w *workerTest) { w.send(&Quit{}) }, ErrUnexpectedKind},
		"run":         {func(w *workerTest) { w.send(&Release{}) }, ErrUnexpectedKind},
	} {
		t.Run(name, func(t *testing.T) {
			w := startWorker(t, stepper("a"))
			w.send(&Load{Spec: LoadSpec{Gated: true}})
			expect[*Ask](w)
			c.say(w)
			w.end(c.want)
		})
	}
}

// Loading a model asks before what is heavy: the file, the optimizer, each
// segment, each operator of a run that warms it up; and ends where it is refused.
func TestStepsOfAModel(t *testing.T) {
	skipWithoutLibrary(t)
	spec := LoadSpec{ModelPath: openZoo(t, "tiny_mlp"), CacheDir: t.TempDir(), MaxBatch: 4}
	asked := map[string]int{}
	var order []string
	engine, err := LoadONNX(spec, nothing, func(phase string, done, total int64) error {
		if done < 0 || done >= total {
			t.Errorf("%s: step %d of %d", phase, done, total)
		}
		if asked[phase]++; asked[phase] == 1 {
			order = append(order, phase)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	operators := len(engine.Info().Operators)
	if err := engine.Close(); err != nil {
		t.Error(err)
	}
	if want := list("runtime", "read", "optimize", "cut", "load", "warm"); !slices.Equal(order, want) {
		t.Errorf("steps %q, want %q", order, want)
	}
	if asked["load"] != operators || asked["warm"] != 2*(1+warmRuns)*operators {
		t.Errorf("%d operators: %v", operators, asked)
	}
	for _, phase := range order {
		engine, err := LoadONNX(spec, nothing, func(p string, _, _ int64) error {
			if p == phase {
				return ErrNoLeave
			}
			return nil
		})
		if !errors.Is(err, ErrNoLeave) {
			t.Errorf("refused to %s: %v", phase, err)
			if err == nil {
				engine.Close()
			}
		}
	}
}
