package reproduce

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"time"

	"github.com/overlapd/overlapd/internal/stats"
	"github.com/overlapd/overlapd/internal/textfile"
	"github.com/overlapd/overlapd/lab/sim"
	"github.com/overlapd/overlapd/models"
)

// dayFolder holds the load of real clients, below the folder with data. It is from ServeGen
// (Alibaba, Apache-2.0), with a file for each client. A row covers ten minutes: its second, the
// requests per second, the coefficient of variation of the inter-arrival times, and a distribution
// fitted to them. The distribution is not used.
const dayFolder = "traces/servegen/m-small"

// The limits of a day and of its rates.
const (
	dayHours = 24

	// maxVariation caps the coefficient of variation, which is in the hundreds for some fits of
	// single bursts.
	maxVariation = 10

	maxDayRate = 1e6
)

// day is the load of all clients over a day.
type day struct {
	// paths are the files of the clients, for the hash of the data.
	paths []string

	// clients are in the order of paths.
	clients []client
}

// client is the load of one client, given by the first ten minutes of each hour.
type client struct {
	// rates are in requests per second.
	rates [dayHours]float64

	// shapes are those of the gamma distribution of inter-arrival times.
	shapes [dayHours]float64
}

// daySheet is the format of a client's file.
var daySheet = textfile.Sheet{
	Form:    "no header line, and rows with a second, requests per second, a coefficient of variation and three more columns",
	MaxRows: 1 << 16, Unusable: errData, TooLarge: errData,
}

// readDay reads the first day of all clients. It returns an empty day if the folder does not exist.
func readDay(dir string) (d day, err error) {
	if d.paths, err = filepath.Glob(filepath.Join(dir, dayFolder, "*.csv")); err != nil {
		return d, err
	}
	for _, path := range d.paths {
		c := client{}
		row := func(t *textfile.Table) {
			if len(t.Fields) < 3 {
				t.Fault("%d fields; give %s", len(t.Fields), daySheet.Form)
				return
			}
			at := t.Whole(0, 0, math.MaxInt32)
			// Use the first row of each hour of the first day.
			if hour := at / 3600; at%3600 == 0 && hour < dayHours {
				c.rates[hour] = t.Number(1, 0, maxDayRate)
				v := min(t.Number(2, 0, math.MaxFloat64), maxVariation)
				c.shapes[hour] = 1 / max(v*v, 1e-4)
			}
		}
		err = errors.Join(err, daySheet.ReadFile(path, row, row))
		d.clients = append(d.clients, c)
	}
	// Without any load, arrivals could not be scaled to a rate.
	if err == nil && len(d.clients) > 0 && d.mean() == 0 {
		err = fmt.Errorf("%s: %w: no client has requests on the first day; give the files of ServeGen", filepath.Join(dir, dayFolder), errData)
	}
	return d, err
}

// mean returns the mean load of all clients together, in requests per second.
func (d *day) mean() (sum float64) {
	for i := range d.clients {
		sum += stats.Mean(d.clients[i].rates[:])
	}
	return sum
}

// arrivals returns the queries of the day, scaled to a mean rate and to a length of an hour. Client
// i queries service i modulo the number of services. Inter-arrival times vary as those of the
// clients, or are exponential if the load is to be stable.
func (d *day) arrivals(services int, rate float64, hour time.Duration, stable bool, seed uint64) (list []sim.Query) {
	// Each client has random numbers of its own, so that its queries depend neither on the other
	// clients nor on their number.
	factor := rate / d.mean()
	for i := range d.clients {
		c, r := &d.clients[i], rand.New(rand.NewPCG(seed, uint64(i)))
		shape := func(h int) float64 {
			if stable || c.shapes[h] == 0 {
				return 1
			}
			return c.shapes[h]
		}
		// Inter-arrival times are in units of expected queries, so that they continue from one hour
		// to the next. The first one began before the day.
		left := r.Float64() * stats.Gamma(shape(0)+1, r) / shape(0)
		for h := range dayHours {
			expected, at := c.rates[h]*factor*hour.Seconds(), 0.0
			for ; at+left < expected; left = stats.Gamma(shape(h), r) / shape(h) {
				at += left
				list = append(list, sim.Query{At: time.Duration(h)*hour + time.Duration(at/expected*float64(hour)), Service: models.ServiceID(i % services), Size: 1})
			}
			left -= expected - at
		}
	}
	// The simulator needs the queries in order.
	slices.SortStableFunc(list, func(a, b sim.Query) int {
		return cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(a.Service, b.Service))
	})
	return list
}

// asks returns the number of devices that an hour of the day keeps busy, if batches are as large as
// targets allow and the mean of the day is one request per second.
func (d *day) asks(m sim.Device, services []sim.Service, hour int) (devices float64) {
	for i := range d.clients {
		s := &services[i%len(services)]
		devices += d.clients[i].rates[hour] * solo(m, s.Model, s.MaxBatch, 0).Seconds() / float64(s.MaxBatch)
	}
	return devices / d.mean()
}

// missingDay records that a figure lacks its load.
func missingDay(r *reproduction, figures, title string) func() []*figure {
	return r.missing(figures, title, fmt.Sprintf("the folder with data has no %s", dayFolder))
}

// demand returns the number of devices that an autoscaler would be asked for (Symphony, section
// 3.5): more than there are if queries are lost, else the busy ones.
func demand(devices, bad, busy float64) float64 {
	if bad > goodputBad {
		return devices / (1 - bad)
	}
	return devices * busy
}

// planChanging plans figure 15. The load of a day passes in 24 seconds, and its busiest hour needs the
// highest rate of the devices.
func planChanging(r *reproduction) func() []*figure {
	const count, devices, hour = 24, 512, time.Second
	title := fmt.Sprintf("a changing load of %d models on %d devices", count, devices)
	if len(r.day.clients) == 0 {
		return missingDay(r, "15", title)
	}
	g := r.gpus[gpu1080Ti]
	w := newWorkload(r, g, devices, stats.Thin(g.zoo(mixes[0].takes), count)...)
	// The figure shows each hour by itself.
	w.part = hour
	most := 0.0
	for h := range dayHours {
		most = max(most, r.day.asks(g.model, w.services, h))
	}
	rate := devices / most
	policies := []string{"deferred", "eager", "clockwork"}
	// The rate is that of the day's mean, so each run serves the arrivals as they are.
	runs := compete(r, "figure 15", "", w, policies, secondsOf(int(rate*dayHours*hour.Seconds()))/32, func(_ context.Context, w *workload, c contender) (rateRun, error) {
		return w.serve(c, r.day.arrivals(len(w.services), rate, hour, false, w.seed), 1)
	})
	return func() []*figure {
		list := changingFigures(runs, title, devices, hour)
		list[0].Notes = append(list[0].Notes, fmt.Sprintf("The load of %d real clients of a day (ServeGen; the paper's is of 150 hours of video), which query %d models of table 3 in turn, with each client's variation within an hour. An hour takes %v. The mean is %.0f requests per second, so that the busiest hour needs the devices' highest rate. The paper gives no numbers.", len(r.day.clients), len(w.services), hour, rate))
		return list
	}
}

// changingFigures returns figure 15, as one figure for each of its parts.
func changingFigures(c cell, title string, devices float64, hour time.Duration) []*figure {
	good := &figure{Figure: "15, goodput", Title: title + ": goodput", Unit: "requests per second", more: true, words: true}
	used := &figure{Figure: "15, devices", Title: title + ": devices that work, and those that a scaler is asked for", Unit: "devices", words: true}
	bad := &figure{Figure: "15, bad", Title: title + ": late and dropped", Unit: "share of the queries", percent: true, decimals: 4, words: true}
	for h := range dayHours {
		c.name = fmt.Sprintf("hour %d", h)
		// These are the values of one hour: queries that arrived and that were in time, the
		// fraction that was not, and the devices that worked.
		came := func(r *rateRun) float64 { return float64(r.partOf(h).came) / hour.Seconds() }
		timely := func(r *rateRun) float64 { return float64(r.partOf(h).good) / hour.Seconds() }
		lost := func(r *rateRun) float64 { return 1 - timely(r)/max(came(r), 1) }
		busy := func(r *rateRun) float64 { return r.partOf(h).busy.Seconds() / hour.Seconds() }
		asked := func(r *rateRun) float64 { return demand(devices, lost(r), busy(r)/devices) }
		good.Rows = append(good.Rows, seedsRow(c.name, "offered", c.of("deferred", came), 0))
		c.fill(good, timely, nil)
		c.fill(used, busy, nil)
		used.Rows = append(used.Rows, seedsRow(c.name, "deferred asks for", c.of("deferred", asked), 0))
		c.fill(bad, lost, nil)
	}
	return []*figure{good, used, bad}
}
