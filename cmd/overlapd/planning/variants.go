package planning

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/overlapd/overlapd/cmd/overlapd/data"
	"github.com/overlapd/overlapd/cmd/overlapd/serving"
	"github.com/overlapd/overlapd/daemon"
	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/planning/selection"
)

// selectable returns a worker with the variants of a service of a configuration, with the
// times that the profile of an emulated device has, or that a daemon has measured here. Of
// sequences the longest count.
func selectable(path, service string) (w selection.Worker, err error) {
	c, err := config.Load(path)
	if err != nil {
		return w, err
	}
	if s := c.Service(service); s == nil || len(s.Variants) == 0 {
		return w, fmt.Errorf("%s has no service %q with variants; name one that has", path, service)
	}
	// A policy is for equal workers, so the first device of the service stands for all.
	first := c.Pool()[c.On(service)[0]]
	run := c.Expanded()
	run.Services = slices.DeleteFunc(run.Services, func(s config.Service) bool { of, _ := s.Of(); return of != service })
	var times [][]soloTime
	if c.Emulated() {
		if w, err = daemon.Selectable(c, service, serving.OfflineOptions(&c)); err == nil {
			times, err = profileTimes(&run, first.Profile)
		}
	} else {
		err = data.ReadState(c.StateDir, func(s *daemon.State) error {
			if w, err = daemon.Selectable(c, service, serving.OfflineOptions(&c)); err == nil {
				times, err = solosOf(s, &w)
			}
			return err
		})
	}
	// Variants are in the order of the expanded services.
	for i := range times {
		w.Variants[i].Latency = latencies(times[i], run.Services[i].MaxBatch)
	}
	return w, err
}

// solosOf returns what a daemon has measured of the variants of a worker.
func solosOf(state *daemon.State, w *selection.Worker) (times [][]soloTime, err error) {
	for _, v := range w.Variants {
		known, err := state.SoloTimesOf(w.Device, v.Hash)
		if err != nil {
			return nil, err
		}
		var list []soloTime
		for _, cell := range known.Cells {
			sum := 0.0
			for _, nanos := range cell.Nanos {
				sum += nanos
			}
			list = append(list, soloTime{cell.Size, cell.SeqLen, sum / float64(time.Millisecond)})
		}
		// A policy with a guess for one variant would choose it always, or never.
		if len(list) == 0 {
			// The threads are part of what the hash stands for, and the usual reason.
			_, share, _ := strings.Cut(v.Hash, "/")
			return nil, fmt.Errorf("variant %s was never measured on %s with %s; run the daemon, which measures it at its start and stores the result when it stops, or give --profile", v.Name, w.Device, share)
		}
		times = append(times, list)
	}
	return times, nil
}
