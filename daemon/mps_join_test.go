package daemon

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/overlapd/overlapd/cuda/mps"
	"github.com/overlapd/overlapd/cuda/mps/fakemps"
	"github.com/overlapd/overlapd/executor"
	"github.com/overlapd/overlapd/models"
)

// joinTest drives joins with workers whose fate is given.
type joinTest struct {
	*joins
	answers []any // bool or error, of the questions to come; the last one stays
	asked   int
	said    []string
}

func newJoinTest(answers ...any) *joinTest {
	t := &joinTest{answers: answers}
	t.joins = &joins{
		life: context.Background(), limit: gpuPatience,
		client: func(context.Context, int) (bool, error) {
			t.asked++
			answer := t.answers[0]
			if len(t.answers) > 1 {
				t.answers = t.answers[1:]
			}
			if err, ok := answer.(error); ok {
				return false, err
			}
			return answer.(bool), nil
		},
		replace: func(id models.ServiceID, cause error) error {
			t.said = append(t.said, fmt.Sprint("replace ", id))
			return nil
		},
		pass: func(e executor.Event) {
			switch e := e.(type) {
			case executor.WorkerReady:
				t.said = append(t.said, fmt.Sprint("ready ", e.Service))
			default:
				t.said = append(t.said, fmt.Sprintf("%T", e))
			}
		},
		told: func(n joinNews) {
			if n.unknown {
				t.said = append(t.said, "unknown")
			}
		},
	}
	t.mu.of = map[models.ServiceID]*join{}
	return t
}

func TestJoins(t *testing.T) {
	unreachable := errors.New("no control daemon")
	for name, tt := range map[string]struct {
		answers []any
		ready   int // workers of service 3 that become ready
		want    []string
		asked   int
		state   join
	}{
		"a client":         {[]any{true}, 1, []string{"ready 3"}, 1, join{}},
		"listed late":      {[]any{false, false, true}, 1, []string{"ready 3"}, 3, join{}},
		"outside once":     {[]any{false, false, false, true}, 2, []string{"replace 3", "ready 3"}, 4, join{outside: 1}},
		"always outside":   {[]any{false}, 3, []string{"replace 3", "replace 3", "ready 3"}, 9, join{outside: 3, row: 3, standing: true}},
		"outside, then no": {[]any{false, false, false, false, false, false, false, false, false, true}, 4, []string{"replace 3", "replace 3", "ready 3", "ready 3"}, 10, join{outside: 3}},
		"cannot be asked":  {[]any{unreachable}, 2, []string{"unknown", "ready 3", "ready 3"}, 2, join{}},
		"is back in between": {[]any{unreachable, true, unreachable}, 3,
			[]string{"unknown", "ready 3", "ready 3", "unknown", "ready 3"}, 3, join{}},
	} {
		j := newJoinTest(tt.answers...)
		for range tt.ready {
			j.event(executor.WorkerReady{Service: 3, PID: 7})
		}
		if !slices.Equal(j.said, tt.want) || j.asked != tt.asked || j.of(3) != tt.state {
			t.Errorf("%s: %q, asked %d times, %+v; want %q, %d, %+v", name, j.said, j.asked, j.of(3), tt.want, tt.asked, tt.state)
		}
		if known := j.fault() == nil; known != (tt.answers[len(tt.answers)-1] != any(unreachable)) {
			t.Errorf("%s: it is known: %t", name, known)
		}
	}
}

// The successor of a service goes on with its count, which is a metric.
func TestJoinsOfASuccessor(t *testing.T) {
	j := newJoinTest(false)
	j.event(executor.WorkerReady{Service: 1})
	j.event(executor.WorkerReady{Service: 4})
	j.inherit(1, 4)
	j.inherit(7, 4) // of which nothing is known
	(*joins)(nil).inherit(1, 4)
	if got := j.of(4); got.outside != 2 || got.row != 1 || j.of(1).outside != 0 {
		t.Errorf("%+v, %+v", got, j.of(1))
	}
}

// Services are told apart, other events pass, and a worker that cannot be
// replaced serves.
func TestJoinsOfEachService(t *testing.T) {
	j := newJoinTest(false)
	j.event(executor.WorkerStarting{Service: 1})
	j.event(executor.WorkerReady{Service: 1})
	j.event(executor.WorkerReady{Service: 2})
	j.replace = func(models.ServiceID, error) error { return errors.New("it is closed") }
	j.event(executor.WorkerReady{Service: 1})
	want := []string{"executor.WorkerStarting", "replace 1", "replace 2", "ready 1"}
	if !slices.Equal(j.said, want) || !j.of(1).standing || j.of(2).standing || j.of(2).outside != 1 {
		t.Errorf("%q, %+v, %+v", j.said, j.of(1), j.of(2))
	}
	if j.event(executor.WorkerStopped{Service: 1}); j.of(1) != (join{}) {
		t.Errorf("what was stopped is remembered: %+v", j.of(1))
	}
	ended, end := context.WithCancel(context.Background())
	end()
	j.life = ended
	if j.event(executor.WorkerReady{Service: 4}); j.said[len(j.said)-1] != "ready 4" || j.of(4) != (join{}) {
		t.Errorf("after the end: %q", j.said)
	}
	if none := (*joins)(nil); none.of(1) != (join{}) || none.fault() != nil {
		t.Error("without MPS there is something to tell")
	}
}

// A worker that MPS does not list is replaced so often, and then serves with a
// standing fault, until one is listed.
func TestOutsideMPS(t *testing.T) {
	r := newGPURig(t, "a")
	behave := func(lines ...string) {
		if err := fakemps.Behave(r.config.MPS.Dir+"/"+r.server.Devices[0].UUID[:12]+"/pipe", lines...); err != nil {
			t.Fatal(err)
		}
	}
	behave("unlisted")
	r.start()
	r.eventually("ready", r.Ready)
	o, ok := r.backend.Overview()
	if !ok {
		t.Fatal("no overview")
	}
	s := o.Services[0].OutsideMPS
	if s == nil || s.Workers != 1+joinReplacements || !strings.Contains(s.Fault, `mode = "off"`) || !slices.Equal(o.GPU[0].MPS.Outside, []string{"a"}) {
		t.Errorf("%+v, %+v", s, o.GPU[0].MPS)
	}
	if status, text := r.ask(http.DefaultClient, "a"); status != http.StatusOK {
		t.Errorf("it does not serve: %d %s", status, text)
	}
	for _, want := range []string{`overlapd_worker_outside_mps_total{service="a"} 3`, `overlapd_service_outside_mps{service="a"} 1`} {
		if text := r.get("/metrics"); !strings.Contains(text, want+"\n") {
			t.Errorf("%q is not in the metrics", want)
		}
	}
	if n := strings.Count(r.log.String(), `"worker is replaced"`); n != joinReplacements || !strings.Contains(r.log.String(), "worker serves outside of MPS") {
		t.Errorf("%d times replaced in\n%s", n, r.log)
	}
	behave()
	kill(t, r.pids()["a"])
	r.eventually("a client", func() bool { return r.Ready() && len(r.fault()) == 0 })
	http.DefaultClient.CloseIdleConnections()
}

// fault returns the services that run outside of MPS.
func (r *gpuRig) fault() []string {
	o, ok := r.backend.Overview()
	if !ok {
		r.t.Fatal("no overview")
	}
	return o.GPU[0].MPS.Outside
}

// An existing daemon that counts processes otherwise cannot be asked, which is
// told once, and keeps nobody from serving.
func TestForeignMPS(t *testing.T) {
	r := newGPURig(t, "a", "b")
	o := r.opts.GPU.MPS
	o.Directory, o.Device = r.config.MPS.Dir, r.server.Devices[0].UUID
	existing, err := mps.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	pipe := o.Directory + "/pipe"
	r.config.MPS.Mode, r.config.MPS.Dir = "existing", pipe
	if err := fakemps.Behave(pipe, "foreign"); err != nil {
		t.Fatal(err)
	}
	d, err := New(r.config, r.opts)
	if err != nil {
		t.Fatal(err)
	}
	r.Daemon = d
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- d.Run(ctx, context.Background()) }()
	r.eventually("ready", r.Ready)
	told, _ := r.backend.Overview()
	if m := told.GPU[0].MPS; !strings.Contains(m.Fault, "another PID namespace") || m.Outside != nil {
		t.Errorf("%+v", m)
	}
	if n := strings.Count(r.log.String(), "MPS cannot be asked"); n != 1 {
		t.Errorf("told %d times in\n%s", n, r.log)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if err := errors.Join(fakemps.Behave(pipe), existing.Stop()); err != nil {
		t.Error(err)
	}
}
