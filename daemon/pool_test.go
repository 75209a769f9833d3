package daemon

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/daemon/observe/timeline"
	"github.com/overlapd/overlapd/daemon/status"
	"github.com/overlapd/overlapd/internal/fakes/fakeworkers"
	"github.com/overlapd/overlapd/models"
)

// pooledConfig has two emulated devices that are alike.
func pooledConfig(t *testing.T, change func(*config.Config)) config.Config {
	return emulatedConfig(t, func(c *config.Config) {
		c.Device, c.DeviceProfile = config.DeviceAuto, ""
		for _, name := range []string{"left", "right"} {
			c.Devices = append(c.Devices, config.Device{Name: name, Kind: config.DeviceEmulated, Profile: "formula.device.json"})
		}
		if change != nil {
			change(c)
		}
	})
}

// burst sends so many queries of size 8 at once, and returns how many were answered with
// outputs.
func (d *emulatedDaemon) burst(queries int) (answered int) { return d.burstOf(queries, 8) }

// burstOf is burst with queries of another size.
func (d *emulatedDaemon) burstOf(queries, size int) (answered int) {
	var clients sync.WaitGroup
	var n atomic.Int32
	for range queries {
		clients.Go(func() {
			if status, text := d.infer(0, size, 0); status == http.StatusOK {
				n.Add(1)
			} else {
				d.t.Errorf("%d: %s", status, text)
			}
		})
	}
	clients.Wait()
	return int(n.Load())
}

// overview returns the status as clients see it.
func (d *emulatedDaemon) overview() (o status.Status) {
	d.t.Helper()
	text, _ := d.get("/overlapd/status")
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		d.t.Fatal(err)
	}
	return o
}

// lanes returns the rounds of each device.
func (d *emulatedDaemon) lanes() map[string][]timeline.Round {
	lanes := map[string][]timeline.Round{}
	for _, r := range d.backend.Timeline().Read(timeline.Latest, timeline.PageRounds, nil).Rounds {
		lanes[r.Device] = append(lanes[r.Device], r)
	}
	return lanes
}

// Two devices serve one queue: each runs rounds, and some of them at the same time.
func TestPoolSharesAQueue(t *testing.T) {
	d := serveEmulated(t, pooledConfig(t, func(c *config.Config) { c.Decisions.Log = true }))
	if n := d.burst(60); n != 60 {
		t.Fatalf("%d queries were answered", n)
	}
	lanes := d.lanes()
	left, right := lanes["left"], lanes["right"]
	if len(left) == 0 || len(right) == 0 || len(lanes) != 2 {
		t.Fatalf("%d and %d rounds, %d lanes", len(left), len(right), len(lanes))
	}
	together := slices.ContainsFunc(left, func(a timeline.Round) bool {
		return slices.ContainsFunc(right, func(b timeline.Round) bool { return a.Start < b.End && b.Start < a.End })
	})
	if !together {
		t.Error("no two rounds run at a time")
	}
	o := d.overview()
	if len(o.Pool) != 2 || o.Pool[0].Rounds+o.Pool[1].Rounds != o.Rounds || o.Pool[1].BusySeconds <= 0 || o.Pool[1].Predictor != nil {
		t.Errorf("%+v", o.Pool)
	}
	want := []status.Replica{{Device: "left", Ready: true}, {Device: "right", Ready: true}}
	if s := o.Services[0]; !slices.Equal(s.Replicas, want) || s.Finished != 60 {
		t.Errorf("%+v", s)
	}
	tells(t, scrape(t, d.published()), `overlapd_worker_ready{device="right",service="s0"} 1`)
	d.stop()
	d.replays()
}

// A service runs on the devices that it names; a reload gives it others while it serves,
// and takes them away again.
func TestPoolReload(t *testing.T) {
	level := zerolog.GlobalLevel() // which a reload sets
	defer func() { zerolog.SetGlobalLevel(level) }()
	d := serveEmulated(t, pooledConfig(t, func(c *config.Config) { c.Services[0].On = []string{"left"} }))
	d.burst(20)
	if lanes := d.lanes(); len(lanes["right"]) > 0 || len(lanes["left"]) == 0 {
		t.Errorf("%d rounds on the device that it does not name", len(lanes["right"]))
	}
	stop := make(chan struct{})
	var clients sync.WaitGroup
	over := sync.OnceFunc(func() { close(stop); clients.Wait() })
	defer over()
	for range 4 {
		clients.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					d.burst(2)
				}
			}
		})
	}
	for _, on := range [][]string{{"left", "right"}, {"right"}, {"left"}} {
		next := d.Config()
		next.Services = slices.Clone(next.Services)
		next.Services[0].On = on
		done, err := d.Reload(context.Background(), next, nil)
		if err != nil || len(done.Failed) > 0 || !slices.Equal(done.Moved, []string{"s0"}) {
			t.Fatalf("%v: %+v, %v\n%s", on, done, err, d.log)
		}
		d.await("its workers are on other devices", func(o *status.Status) bool {
			return slices.EqualFunc(o.Services[0].Replicas, on, func(r status.Replica, name string) bool { return r.Device == name && r.Ready })
		})
	}
	over()
	d.burst(10)
}

// await waits until the status is as wanted.
func (d *emulatedDaemon) await(what string, holds func(*status.Status) bool) {
	d.t.Helper()
	for begin := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		o := d.overview()
		if holds(&o) {
			return
		}
		if time.Since(begin) > 20*time.Second {
			d.t.Fatalf("%s: not yet: %+v\n%s", what, o.Services, d.log)
		}
	}
}

// Devices that are not alike have predictors of their own, and what the status says of
// the second is with its device.
func TestPoolOfUnlikeDevices(t *testing.T) {
	other := func(c *config.Config) (*emulation, error) {
		e, err := formulaEmulation(c)
		if c.DeviceProfile == "other.device.json" {
			e.hash, e.text = "another", "emulated: other"
		}
		return e, err
	}
	d := serveEmulatedOn(t, pooledConfig(t, func(c *config.Config) { c.Devices[1].Profile = "other.device.json" }), other)
	d.burst(40)
	o := d.overview()
	if o.Pool[1].Predictor == nil || o.Pool[0].Predictor != nil || o.Device != "emulated: formula; emulated: other" {
		t.Errorf("%q, %+v", o.Device, o.Pool)
	}
}

// Whatever happens to the workers of several devices and to clients, every query gets its
// one answer, no batch goes on where it is not held, no memory is left, and the log
// reproduces. Services are measured meanwhile, on one device at a time.
func TestPoolUnderRandomEvents(t *testing.T) {
	const services, clients, each = 3, 8, 50
	for seed := range uint64(6) {
		policy := []string{"overlap", "abacus", "edf"}[seed%3]
		r := startRig(t, rigOptions{services: services, devices: 2 + int(seed%2), dir: put(t, fakeworkers.Predictor(services)), change: func(c *config.Config) {
			c.Decisions.Log, c.Policy, c.Profile.Groups = true, policy, 300
			for i := range c.Services {
				c.Services[i].MaxBatch, c.Services[i].QueueLimit = 4, 8
			}
		}})
		r.trouble(seed, services, clients, each)
		r.replays()
		if t.Failed() {
			t.Fatalf("seed %d, policy %s", seed, policy)
		}
	}
}

// While one device measures, the others serve: the only worker of a service that is left
// answers before the round that measures is over.
func TestPoolServesWhileItMeasures(t *testing.T) {
	r := startRig(t, rigOptions{services: 2, devices: 2})
	var busy, free *fakeworkers.Workers
	for busy == nil {
		for i, f := range r.pool {
			if len(f.Sent()) > 0 {
				busy, free = f, r.pool[1-i]
			}
		}
	}
	for range 3 {
		c := mustSubmit(t, r.backend, 0)
		free.Await()
		free.End(models.SpanDone)
		isServed(t, r.backend, c)
	}
	if busy.Stops() > 0 {
		t.Error("measuring was stopped though a device was free")
	}
	busy.End(models.SpanDone)
}
