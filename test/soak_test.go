package test

import (
	"encoding/csv"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// How a soak is chosen from outside.
const (
	soakTime = "SOAK_TIME" // how long it runs; without it, not at all
	soakOut  = "SOAK_OUT"  // folder for its course, as soak.csv
)

const (
	soakLook        = 5 * time.Second  // between two looks
	soakDisturbance = 20 * time.Second // between two small disturbances, on average
	floorLooks      = 12               // of which the least counts
	fewestLooks     = 4 * floorLooks   // in the half that is judged
)

// What may grow in the second half of a soak, per hour. Memory of a process
// that leaks nothing wanders by 30 MiB as garbage collections fall; one KiB
// leaked with each of 100 queries a second is 350 MiB an hour.
const (
	growthBytes  = 64 << 20 // and no less than driftBytes in all
	driftBytes   = 32 << 20 // that memory may wander within one soak
	growthCounts = 10.0     // descriptors, goroutines, threads
	driftCounts  = 8.0
)

// look is one line of a soak's course.
type look struct {
	at     time.Duration
	values map[string]float64
}

// TestSoak has a daemon under steady mixed load with small disturbances, for
// as long as SOAK_TIME says, and fails if its memory, its workers' or the
// number of anything grows in the second half.
func TestSoak(t *testing.T) {
	text := os.Getenv(soakTime)
	if text == "" {
		t.Skipf("%s is not set; make soak sets it", soakTime)
	}
	length, err := time.ParseDuration(text)
	if err != nil {
		t.Fatalf("%s: %v", soakTime, err)
	}
	c := newChaos(t, length, 1)
	c.note("predictor: %s", c.p.settles())
	c.measureBurst()
	var course []look
	t.Cleanup(func() { c.reportSoak(course) })
	c.begin = time.Now()
	c.load()
	c.clients.Go(func() { c.disturbGently() })
	for next := soakLook; next <= length && !t.Failed(); next += soakLook {
		c.rest(time.Until(c.begin.Add(next)))
		if values, err := c.look(); err == nil { // a worker may be away just now, or a flood take all connections
			course = append(course, look{time.Since(c.begin), values})
		}
	}
	c.end()
	c.settleConfiguration()
	// A query runs on for a moment when its client has left.
	c.p.eventually("all queries to end", func() bool {
		f, err := c.p.footprint(c.names())
		return err == nil && f.outstanding == ""
	})
	c.balance()
	for _, f := range c.ledger.faulty() {
		t.Error(f)
	}
	if second := course[len(course)/2:]; len(second) < fewestLooks {
		t.Errorf("%v are too short: %d looks to judge by", length, len(second))
	} else {
		judgeCourse(t, second)
	}
}

// disturbGently does every now and then what happens in a day's work.
func (c *chaos) disturbGently() {
	random := rand.New(rand.NewPCG(c.seed, 2))
	gentle := slices.DeleteFunc(slices.Clone(kinds), func(k kind) bool {
		return !slices.Contains([]string{"kill", "overload", "reload", "connections"}, k.name)
	})
	for !c.over.Load() {
		c.pause(random, soakDisturbance)
		if !c.over.Load() {
			k := gentle[random.IntN(len(gentle))]
			k.do(c, &disturbance{kind: k, lasts: time.Second, random: random})
		}
	}
}

// look takes what is watched, in bytes and counts.
func (c *chaos) look() (map[string]float64, error) {
	f, err := c.p.footprint(c.names())
	if err != nil {
		return nil, err
	}
	values := map[string]float64{"goroutines": float64(f.goroutines), "heap bytes": f.heap}
	for name, u := range f.processes {
		values["resident bytes of "+name] = float64(u.resident)
		values["descriptors of "+name] = float64(u.descriptors)
		values["threads of "+name] = float64(u.threads)
	}
	return values, nil
}

// judgeCourse fails if anything grows.
func judgeCourse(t *testing.T, course []look) {
	t.Helper()
	for _, name := range watched(course) {
		perHour, over := slope(course, name)
		limit, drift := growthCounts, driftCounts
		if strings.Contains(name, "bytes") {
			limit, drift = growthBytes, driftBytes
		}
		grown := perHour * over.Hours()
		verdict := "flat"
		if perHour > limit && grown > drift {
			verdict = "GROWS"
			t.Errorf("%s grow by %.0f an hour, %.0f in the second half; %.0f an hour and %.0f in all may be", name, perHour, grown, limit, drift)
		}
		t.Logf("%-26s %14.0f at the end %+14.0f an hour  %s", name, course[len(course)-1].values[name], perHour, verdict)
	}
}

// watched are the names of what is watched, those of bytes first.
func watched(course []look) (names []string) {
	var counts []string
	for _, name := range slices.Sorted(maps.Keys(course[0].values)) {
		if strings.Contains(name, "bytes") {
			names = append(names, name)
		} else {
			counts = append(counts, name)
		}
	}
	return append(names, counts...)
}

// slope returns by how much something grows per hour: the median of the slopes
// between looks of the first and of the last third, which single peaks do not
// move (Theil and Sen, over pairs far apart). It also returns the time that the
// course covers.
func slope(course []look, name string) (perHour float64, over time.Duration) {
	third := len(course) / 3
	values := floor(course, name)
	var slopes []float64
	for a := range third {
		for b := len(course) - third; b < len(course); b++ {
			slopes = append(slopes, (values[b]-values[a])/(course[b].at-course[a].at).Hours())
		}
	}
	slices.Sort(slopes)
	return slopes[len(slopes)/2], course[len(course)-1].at - course[0].at
}

// floor returns the least of each look and those before it: what a disturbance
// takes is given back within seconds, and what leaks is not.
func floor(course []look, name string) []float64 {
	values := make([]float64, len(course))
	for i := range course {
		values[i] = course[i].values[name]
		for _, l := range course[max(0, i+1-floorLooks):i] {
			values[i] = min(values[i], l.values[name])
		}
	}
	return values
}

// reportSoak says what happened, and leaves the course as a table.
func (c *chaos) reportSoak(course []look) {
	c.report()
	dir := os.Getenv(soakOut)
	if dir == "" || len(course) == 0 {
		return
	}
	names := watched(course)
	file, err := os.Create(filepath.Join(dir, "soak.csv"))
	if err != nil {
		c.t.Error(err)
		return
	}
	defer file.Close()
	rows := [][]string{append([]string{"seconds"}, names...)}
	for _, l := range course {
		row := []string{strconv.FormatFloat(l.at.Seconds(), 'f', 1, 64)}
		for _, name := range names {
			row = append(row, strconv.FormatFloat(l.values[name], 'f', -1, 64))
		}
		rows = append(rows, row)
	}
	if err := csv.NewWriter(file).WriteAll(rows); err != nil {
		c.t.Error(err)
	}
}

// The verdict finds what grows, and not what wanders or peaks.
func TestSlope(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 1))
	course := make([]look, 180) // a quarter of an hour
	for i := range course {
		at := time.Duration(i) * soakLook
		noise := random.NormFloat64()
		peak := 0.0
		if random.IntN(10) == 0 {
			peak = 50 << 20
		}
		course[i] = look{at, map[string]float64{
			"flat": 100 << 20, "wandering": 100<<20 + noise*(4<<20), "peaks": 100<<20 + peak, "at the end": 100 << 20,
			"leaking": 100<<20 + at.Hours()*(100<<20) + noise*(2<<20),
		}}
	}
	for i := len(course) - floorLooks/2; i < len(course); i++ {
		course[i].values["at the end"] *= 3
	}
	for name, want := range map[string]float64{"flat": 0, "at the end": 0, "wandering": 0, "peaks": 0, "leaking": 100 << 20} {
		if got, over := slope(course, name); got < want-growthBytes/2 || got > want+growthBytes/2 || over != 179*soakLook {
			t.Errorf("%s: %.1f MiB an hour over %v, want %.1f", name, got/(1<<20), over, want/(1<<20))
		}
	}
}
