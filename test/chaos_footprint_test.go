package test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// What a daemon may have more of after a load than before it. Memory is given
// back to the system by and by, and the threads of a Go program never end; what
// leaks with every request is far above these after thousands of them.
const (
	moreDescriptors = 2
	moreGoroutines  = 4
	moreThreads     = 24
	moreBytes       = 64 << 20 // and a quarter of what was there
	racedTimes      = 3        // as much under the race detector
)

// footprint is what a daemon takes of the system.
type footprint struct {
	goroutines  int
	heap        float64 // bytes
	zombies     int
	processes   map[string]usage
	outstanding string // what the daemon says is not answered or given back
}

// usage is that of a process.
type usage struct {
	pid, descriptors, memfds, threads int
	resident, peak                    int64
}

// footprint measures a daemon and the workers of services.
func (p *process) footprint(services []string) (f footprint, err error) {
	f.processes = map[string]usage{}
	pids := map[string]int{"daemon": p.cmd.Process.Pid}
	for _, s := range services {
		pids[s] = p.worker(s)
	}
	for name, pid := range pids {
		if f.processes[name], err = measure(pid); err != nil {
			return f, fmt.Errorf("%s: %w", name, err)
		}
	}
	var children int
	if children, f.zombies, err = childrenOf(p.cmd.Process.Pid); err != nil {
		return f, err
	}
	if children != len(services)+f.zombies {
		return f, fmt.Errorf("%d child processes of %d services", children, len(services))
	}
	metrics := p.metrics()
	if metrics["go_goroutines"] == 0 {
		return f, errors.New("the metrics were not answered")
	}
	f.goroutines, f.heap = int(metrics["go_goroutines"]), metrics["go_memstats_heap_inuse_bytes"]
	if raced {
		// The race detector keeps what it has taken for each goroutine and lock that there ever
		// was, several times what Go took. That says nothing of the daemon.
		daemon := f.processes["daemon"]
		daemon.resident = int64(metrics["go_memstats_sys_bytes"] - metrics["go_memstats_heap_released_bytes"])
		f.processes["daemon"] = daemon
	}
	for _, name := range []string{"overlapd_queue_length", "overlapd_batches_paused", "overlapd_input_bytes", "nv_inference_pending_request_count"} {
		for key, v := range metrics {
			if strings.HasPrefix(key, name+"{") && v != 0 {
				f.outstanding += fmt.Sprintf("%s is %v; ", key, v)
			}
		}
	}
	return f, nil
}

// takeMemory replaces the memory of the processes by what they have now. The
// rest is compared with a daemon that was never asked anything; its memory with
// one that has had all kinds of load once.
func (f *footprint) takeMemory(now footprint) {
	for name, u := range f.processes {
		u.resident = now.processes[name].resident
		f.processes[name] = u
	}
}

// measure looks at a process.
func measure(pid int) (u usage, err error) {
	u.pid = pid
	dir := fmt.Sprintf("/proc/%d", pid)
	links, err := os.ReadDir(dir + "/fd")
	if err != nil {
		return u, err
	}
	u.descriptors = len(links)
	for _, link := range links {
		if target, err := os.Readlink(filepath.Join(dir, "fd", link.Name())); err == nil && strings.HasPrefix(target, "/memfd:") {
			u.memfds++
		}
	}
	threads, err := os.ReadDir(dir + "/task")
	if err != nil {
		return u, err
	}
	u.threads = len(threads)
	text, err := os.ReadFile(dir + "/statm")
	var size int64
	fmt.Sscan(string(text), &size, &u.resident)
	u.resident *= int64(os.Getpagesize())
	status, _ := os.ReadFile(dir + "/status")
	_, kib, _ := strings.Cut(string(status), "VmHWM:")
	fmt.Sscan(kib, &u.peak)
	u.peak <<= 10
	return u, err
}

// childrenOf counts the children of a process, and those that nobody reaped.
func childrenOf(parent int) (children, zombies int, err error) {
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	for _, file := range files {
		text, err := os.ReadFile(file)
		at := bytes.LastIndexByte(text, ')')
		if err != nil || at < 0 {
			continue
		}
		fields := strings.Fields(string(text[at+1:]))
		if len(fields) < 2 || fields[1] != strconv.Itoa(parent) {
			continue
		}
		if children++; fields[0] == "Z" {
			zombies++
		}
	}
	return children, zombies, err
}

// metrics returns what a scrape tells, by name and labels.
func (p *process) metrics() map[string]float64 {
	_, text := p.get("/metrics")
	all := map[string]float64{}
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if v, err := strconv.ParseFloat(value, 64); err == nil && !strings.HasPrefix(name, "#") {
			all[name] = v
		}
	}
	return all
}

// grown says what is more than before, beyond what it may be.
func (f footprint) grown(before footprint) (all []string) {
	times := 1
	if raced {
		times = racedTimes
	}
	more := func(what string, now, then, by int) {
		if now > then+by {
			all = append(all, fmt.Sprintf("%s: %d, %d before", what, now, then))
		}
	}
	more("goroutines", f.goroutines, before.goroutines, moreGoroutines)
	more("zombies", f.zombies, 0, 0)
	for name, now := range f.processes {
		then := before.processes[name]
		more("descriptors of "+name, now.descriptors, then.descriptors, moreDescriptors)
		more("shared memory of "+name, now.memfds, then.memfds, 0)
		more("threads of "+name, now.threads, then.threads, moreThreads)
		more("resident bytes of "+name, int(now.resident), int(then.resident), times*moreBytes+int(then.resident)/4)
	}
	if f.outstanding != "" {
		all = append(all, f.outstanding)
	}
	return all
}

func (f footprint) String() string {
	parts := []string{fmt.Sprintf("%d goroutines", f.goroutines)}
	for name, u := range f.processes {
		parts = append(parts, fmt.Sprintf("%s %.1f MiB, %d descriptors, %d threads, %d memfds", name, float64(u.resident)/(1<<20), u.descriptors, u.threads, u.memfds))
	}
	return strings.Join(parts, "; ")
}

// settled looks again and again until the daemon has no more than before, or
// the limit is over, and returns the last look and what is still wrong.
func (p *process) settled(services []string, before footprint, limit time.Duration) (f footprint, wrong []string) {
	const between, twice = 100 * time.Millisecond, 2
	good := 0
	for begin := time.Now(); ; time.Sleep(between) {
		var err error
		switch f, err = p.footprint(services); {
		case err != nil:
			wrong = []string{err.Error()}
		default:
			wrong = f.grown(before)
		}
		if good++; len(wrong) > 0 {
			good = 0
		}
		if good == twice || time.Since(begin) > limit {
			return f, wrong
		}
	}
}
