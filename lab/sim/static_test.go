package sim

import (
	"strings"
	"testing"
	"time"

	"github.com/overlapd/overlapd/executor/emulated/device"
)

// halves is a scenario of two services whose batches take 10 ms and 2 ms for each query on
// the whole device.
func halves(t *testing.T, first, second int) Scenario {
	t.Helper()
	p, err := device.Linear("gpu", "slow,10,0\nfast,2,0\n")
	if err != nil {
		t.Fatal(err)
	}
	d := modelOf(t, p)
	return Scenario{
		Device: d, Policy: "static", Check: true, Given: []Query{{Service: 0, Size: 1}, {Service: 1, Size: 1}, {Service: 1, Size: 1, At: time.Millisecond}},
		Services: []Service{{Name: "slow", Target: time.Second, Percentage: first}, {Name: "fast", Target: time.Second, Percentage: second}},
	}
}

// Each service runs in its share at its pace, and neither waits for the other.
func TestStaticSharesAreApart(t *testing.T) {
	sc := halves(t, 20, 80)
	ends := map[string]time.Duration{}
	sc.Observer.Round = func(r *Round) {
		for _, s := range r.Spans {
			ends[sc.Services[s.Service].Name] = r.End
		}
	}
	r, err := Run(sc)
	if err != nil {
		t.Fatal(err)
	}
	if ends["slow"] != 50*time.Millisecond || ends["fast"] != 5*time.Millisecond {
		t.Errorf("the last rounds end at %v, want 50 ms and 5 ms", ends)
	}
	if r.Violations != 0 || r.Rounds != 3 || len(r.Kinds) != 2 {
		t.Errorf("%+v", r)
	}
	// 14 ms of the whole device within the millisecond in which they come.
	if r.Offered < 13.9 || r.Offered > 14.1 {
		t.Errorf("offered are %v", r.Offered)
	}
}

func TestStaticRefuses(t *testing.T) {
	none, over, twice := halves(t, 0, 50), halves(t, 60, 41), halves(t, 50, 50)
	twice.Devices = 2
	formula := halves(t, 50, 50)
	formula.Device = newFormula(1, 0, time.Millisecond, time.Millisecond)
	formula.Services[0].Name, formula.Services[1].Name = "a", "b"
	for want, sc := range map[string]Scenario{
		"service slow: 0 % of the device": none, "sum up to 101 % of the device: want at most 100": over,
		"2 devices: the policy static divides a single device": twice, "needs a device that can be divided": formula,
	} {
		if _, err := Run(sc); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	free := halves(t, 60, 60)
	if free.Policy = "edf"; free.Validate() != nil {
		t.Errorf("shares that nobody heeds: %v", free.Validate())
	}
}
