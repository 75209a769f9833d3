package test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// maxFaults is how many of the things that must not happen are kept.
const maxFaults = 20

// refusals are the reasons that a request may be given while everything goes
// wrong around it. A service whose worker is let alone is never told that it
// was lost, nor that it loads.
var (
	refusals       = []string{"queue_full", "deadline_passed", "cannot_finish", "no_memory"}
	workerRefusals = append([]string{"worker_lost", "loading", "given_up", "quarantined"}, refusals...)
)

// ledger has how every request of a run ended.
type ledger struct {
	mu struct {
		sync.Mutex
		ends    map[string]map[string]int // of each service, by how they ended
		steady  []ending                  // of the service that is let alone
		faults  []string
		further int // faults that were not kept
	}
}

// ending is how a request of the service that is let alone ended.
type ending struct {
	sent time.Time
	took time.Duration
	ok   bool
}

// end takes in how a request ended.
func (l *ledger) end(service, how string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.ends == nil {
		l.mu.ends = map[string]map[string]int{}
	}
	if l.mu.ends[service] == nil {
		l.mu.ends[service] = map[string]int{}
	}
	l.mu.ends[service][how]++
}

// fault takes in what must not happen.
func (l *ledger) fault(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.mu.faults) == maxFaults {
		l.mu.further++
		return
	}
	l.mu.faults = append(l.mu.faults, time.Now().Format("15:04:05.000 ")+fmt.Sprintf(format, args...))
}

func (l *ledger) time(e ending) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.steady = append(l.mu.steady, e)
}

// count returns how many requests of a service ended in some way.
func (l *ledger) count(service, how string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.ends[service][how]
}

// faulty returns what must not have happened.
func (l *ledger) faulty() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := slices.Clone(l.mu.faults)
	if l.mu.further > 0 {
		all = append(all, fmt.Sprintf("and %d more", l.mu.further))
	}
	return all
}

func (l *ledger) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var lines []string
	for service, ends := range l.mu.ends {
		var parts []string
		for how, n := range ends {
			parts = append(parts, fmt.Sprintf("%s %d", how, n))
		}
		slices.Sort(parts)
		lines = append(lines, fmt.Sprintf("%-7s %s", service, strings.Join(parts, ", ")))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// judge says in a word how a request ended, and what is wrong with that.
func judge(q query, a answer, check func(query, answer) error, may []string) (how string, err error) {
	switch {
	case a.Err != nil:
		return "no answer", a.Err
	case a.Status == 200:
		return "ok", check(q, a)
	case slices.Contains(may, a.Reason) && a.Error != "":
		return a.Reason, nil
	}
	return "unknown", fmt.Errorf("an error that it may not get: %v", a)
}

// share is a part of latencies.
func share(sorted []time.Duration, part float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(int(part*float64(len(sorted))), len(sorted)-1)]
}

// window is a time in which a disturbance takes the device or the way to the
// daemon from everybody.
type window struct{ from, to time.Time }

func (w window) holds(e ending) bool {
	return e.sent.Add(e.took).After(w.from) && e.sent.Before(w.to)
}

// latencies returns those of the steady service's answers that fell in none of
// the windows, sorted, and which part of the requests was refused.
func (l *ledger) latencies(from, to time.Time, but []window) (sorted []time.Duration, refused float64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := 0
	for _, e := range l.mu.steady {
		if e.sent.Before(from) || e.sent.After(to) || slices.ContainsFunc(but, func(w window) bool { return w.holds(e) }) {
			continue
		}
		if all++; e.ok {
			sorted = append(sorted, e.took)
		}
	}
	slices.Sort(sorted)
	if all > 0 {
		refused = 1 - float64(len(sorted))/float64(all)
	}
	return sorted, refused
}
