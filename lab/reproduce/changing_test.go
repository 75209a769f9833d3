package reproduce

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/overlapd/overlapd/executor/emulated/device"
	"github.com/overlapd/overlapd/lab/sim"
)

// writeDay puts files of clients below a folder with data.
func writeDay(t *testing.T, dir string, clients ...string) {
	t.Helper()
	folder := filepath.Join(dir, dayFolder)
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	for i, rows := range clients {
		writeFile(t, filepath.Join(folder, string(rune('a'+i))+".csv"), rows)
	}
}

// TestReadDay takes the first ten minutes of each hour of the first day, and says what is
// wrong with a file.
func TestReadDay(t *testing.T) {
	dir := t.TempDir()
	if d, err := readDay(dir); err != nil || len(d.clients) != 0 {
		t.Fatalf("without a folder: %v, %v", d, err)
	}
	writeDay(t, dir, "0,4,2,Gamma,0.25,1\n600,9,9,Gamma,1,1\n3600,8,500,Weibull,1,1\n86400,7,1,Gamma,1,1\n", "0,0,0,,0,0\n7200,2,1,Gamma,1,1\n")
	d, err := readDay(dir)
	if err != nil || len(d.clients) != 2 || len(d.paths) != 2 {
		t.Fatalf("%+v, %v", d, err)
	}
	a, b := d.clients[0], d.clients[1]
	if a.rates[0] != 4 || a.rates[1] != 8 || a.rates[2] != 0 || b.rates[2] != 2 || a.shapes[0] != 0.25 || a.shapes[1] != 1.0/(maxVariation*maxVariation) {
		t.Errorf("%v %v, %v", a.rates, a.shapes, b.rates)
	}
	for rows, want := range map[string]string{"0,x,1,,,\n": "must be a number", "0,1\n": "2 fields", "0,0,0,,0,0\n600,1,1,,0,0\n": "no client has requests"} {
		bad := t.TempDir()
		writeDay(t, bad, rows)
		if _, err := readDay(bad); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), bad) {
			t.Errorf("%q: %v, want %q and the file", rows, err, want)
		}
	}
}

// someDay has two clients of equal rates, twice as high in the second half, of which the
// second one is bursty.
func someDay() *day {
	d := &day{clients: make([]client, 2)}
	for i := range d.clients {
		for h := range dayHours {
			d.clients[i].rates[h], d.clients[i].shapes[h] = 1+float64(h/12), []float64{1, 0.05}[i]
		}
	}
	return d
}

// TestDayArrivals have the mean that is asked for, follow the hours, and vary as clients
// do unless the load is stable.
func TestDayArrivals(t *testing.T) {
	d := someDay()
	const rate, hour = 1000.0, time.Second
	for _, stable := range []bool{true, false} {
		list := d.arrivals(2, rate, hour, stable, 7)
		if !slices.IsSortedFunc(list, func(a, b sim.Query) int { return int(a.At - b.At) }) {
			t.Error("not in order")
		}
		if n := float64(len(list)); math.Abs(n/(rate*dayHours)-1) > 0.06 {
			t.Errorf("stable %t: %v queries, want about %v", stable, n, rate*dayHours)
		}
		var early, late, squares [2]float64
		counts := map[[2]int]float64{}
		for _, q := range list {
			if q.At < 12*hour {
				early[q.Service]++
			} else {
				late[q.Service]++
			}
			if q.At >= dayHours*hour {
				t.Fatalf("a query at %v", q.At)
			}
			counts[[2]int{int(q.Service), int(q.At / (hour / 10))}]++
		}
		if r := late[0] / early[0]; r < 1.9 || r > 2.1 {
			t.Errorf("stable %t: the second half has %v times the first", stable, r)
		}
		for at, n := range counts { // beside the mean of its half
			mean := []float64{100.0 / 3, 200.0 / 3}[at[1]/120]
			squares[at[0]] += (n - mean) * (n - mean) / mean / 240
		}
		if bursty := squares[1] > 3; squares[0] > 1.5 || bursty == stable {
			t.Errorf("stable %t: counts vary %v times as much as Poisson's", stable, squares)
		}
	}
	if a, b := d.arrivals(2, rate, hour, false, 7), d.arrivals(2, rate, hour, false, 8); slices.Equal(a, b) || !slices.Equal(a, d.arrivals(2, rate, hour, false, 7)) {
		t.Error("a seed does not give the same each time, or another seed does")
	}
}

// TestChangingFigures: parts of a run make the rows, also of one that is over early; and
// without the data there is no figure but a reason.
func TestChangingFigures(t *testing.T) {
	run := rateRun{parts: []part{{came: 100, good: 80, busy: 3 * time.Second}, {came: 10, good: 10, busy: time.Second}}}
	c := cell{policies: []string{"deferred"}, runs: map[string][]rateRun{"deferred": {run}}}
	list := changingFigures(c, "x", 4, 2*time.Second)
	for name, want := range map[string]map[string]float64{
		"15, goodput": {"hour 0 offered": 50, "hour 0 deferred": 40, "hour 1 deferred": 5, "hour 23 deferred": 0},
		"15, devices": {"hour 0 deferred": 1.5, "hour 0 deferred asks for": 5, "hour 1 deferred asks for": 0.5},
		"15, bad":     {"hour 0 deferred": 0.2, "hour 1 deferred": 0},
	} {
		for at, value := range want {
			words := strings.SplitN(at, " ", 3)
			if r := figureNamed(t, list, name).find(words[0]+" "+words[1], 0, words[2]); r == nil || math.Abs(*r.Ours-value) > 1e-9 {
				t.Errorf("figure %s, %s: %+v, want %v", name, at, r, value)
			}
		}
	}
	for _, draw := range []planner{planChanging, shepherd.figures[0].plan, shepherd.figures[1].plan} {
		r := &reproduction{options: &Options{Queries: 1, Seeds: 1}, result: &Result{}}
		if draw(r) != nil || len(r.result.Missing) != 1 || !strings.Contains(r.result.Missing[0].Why, dayFolder) {
			t.Errorf("missing %+v", r.result.Missing)
		}
	}
}

// TestWild serves a little of a day on the testbed, and counts its parts.
func TestWild(t *testing.T) {
	g, err := newGPU(device.ReadLinear(filepath.Join(linearData(t), shepherd.file), ""))
	if err != nil {
		t.Fatal(err)
	}
	r := &reproduction{options: &Options{Queries: 1, Seeds: 2, Seed: 5}, gpus: map[string]gpu{"": g}, day: *someDay(), result: &Result{}}
	c := wild(r, "a", wildTarget, 50, false)
	if err := r.plan.run(t.Context(), newLane, newTally(nil, 1)); err != nil {
		t.Fatal(err)
	}
	if n := len(c.runs["shepherd"]); n != 2 || c.runs["shepherd"][0].Queries == c.runs["shepherd"][1].Queries {
		t.Errorf("%d runs, which are alike", n)
	}
	if q := c.of("shepherd", timely); q[0] < 10 || q[0] > 100 {
		t.Errorf("%v in time a second", q)
	}
}

// TestParts: those of a run hold all its queries and all its work.
func TestParts(t *testing.T) {
	g := gpuOf(t, "a,1,5\n")
	w := newWorkload(&reproduction{options: &Options{Queries: 2000, Seed: 3}}, g, 2, g.service("a", 30*time.Millisecond))
	w.part = 100 * time.Millisecond
	run, err := w.serve(contenderNamed("clockwork"), w.arrivals(w.queries), 1500)
	if err != nil {
		t.Fatal(err)
	}
	var sum part
	for i, one := range run.parts {
		if one.busy > 2*w.part {
			t.Errorf("part %d: two devices are busy for %v", i, one.busy)
		}
		sum.came, sum.good, sum.busy = sum.came+one.came, sum.good+one.good, sum.busy+one.busy
	}
	if sum.came != run.Queries || sum.good != run.Answered-run.Late || math.Abs(sum.busy.Seconds()-2*run.Busy*run.Seconds) > 0.05 || len(run.parts) < 10 {
		t.Errorf("%+v of %d parts, the run has %d queries, %d answered, busy %v of %v s", sum, len(run.parts), run.Queries, run.Answered, run.Busy, run.Seconds)
	}
	if alone, err := w.serve(contenderNamed("clockwork-unmerged"), w.arrivals(w.queries), 100); err != nil || alone.batch != 1 || alone.Merged != 0 {
		t.Errorf("unmerged: batches of %d, %d merged, %v", alone.batch, alone.Merged, err)
	}
}
