package residents

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/models/zoo"
	"github.com/overlapd/overlapd/overlap/residency"
)

// memoryShare is the part of the machine's memory that models may take if the configuration does not
// say: the daemon, the page cache of the model files and other programs need the rest.
const memoryShare = 0.8

// What is expected of a model before it was ever loaded: a process with ONNX Runtime, and its weights.
// These are the values of the zoo's models on one machine; scales corrects them on every other one.
const (
	expectedBytes = 48 << 20
	expectedLoad  = 400 * time.Millisecond
	weightsFactor = 1.5   // packed weights and intermediates besides the weights themselves
	weightsRate   = 200e6 // bytes a second

	// reconsiderAfter is how long a model is not loaded that took more than all memory.
	reconsiderAfter = time.Minute

	// learnedPart is the weight of the last load in the correction: a busy moment must not decide it.
	learnedPart = 1.0 / 4
)

// expect returns what is expected of a model that was never loaded, whose file has a size. A guess must
// not keep it from ever being loaded, so it is at most all memory.
func (r *Set) expect(c *config.Service, size int64) residency.Model {
	target := c.Target
	if c.BestEffort {
		target = math.MaxInt64
	}
	load := expectedLoad + time.Duration(float64(size)/weightsRate*float64(time.Second))
	bytes := int64(r.scales.bytes * (expectedBytes + weightsFactor*float64(size)))
	_, limit := r.set.Used()
	return residency.Model{Target: target, Bytes: min(bytes, limit), Load: time.Duration(r.scales.load * float64(load))}
}

// modelBytes returns the size of a model file with its external data, as far as that is known without
// reading it.
func (r *Set) modelBytes(model string) int64 {
	name, ok := strings.CutPrefix(model, config.ZooPrefix)
	if !ok {
		return fileBytes(model)
	}
	if _, known := r.zoo[name]; !known {
		e, _ := zoo.Lookup(name)
		r.zoo[name] = e.Size()
	}
	return r.zoo[name]
}

// fileBytes is modelBytes of a model outside the zoo.
func fileBytes(model string) (sum int64) {
	for _, path := range []string{model, model + ".data", strings.TrimSuffix(model, filepath.Ext(model)) + ".data"} {
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			sum += info.Size()
		}
	}
	return sum
}

// resize takes note that the file of a model which is being loaded has another size than it had, and
// expects of it what its new size suggests. It fails if that is more than all models may take.
func (r *Set) resize(m *resident, c *config.Service) error {
	if !config.IsPath(c.Model) {
		return nil // what is in the zoo does not change
	}
	size := fileBytes(c.Model)
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, limit := r.set.Used(); size > limit {
		return fmt.Errorf("its file has %d MiB, but there are %d MiB for all models: raise memory", size>>20, limit>>20)
	}
	if size != m.size {
		r.expectAgain(m, c, size)
	}
	return nil
}

// expectAgain forgets what a model took when it was loaded last, since its file has another size now.
func (r *Set) expectAgain(m *resident, c *config.Service, size int64) {
	m.size = size
	model := r.expect(c, size)
	model.Keep = m.keep || !r.onDemand
	r.set.Put(r.now(), m.id, model)
}

// learn corrects what is expected of models that were never loaded, by one that just was.
func (r *Set) learn(all *config.Config, c *config.Service, size, bytes int64, took time.Duration) {
	expected := r.expect(c, size)
	correct := func(scale *float64, measured, expected float64) {
		if measured > 0 && expected > 0 {
			*scale *= math.Pow(measured/expected, learnedPart)
		}
	}
	correct(&r.scales.bytes, float64(bytes), float64(expected.Bytes))
	correct(&r.scales.load, float64(took), float64(expected.Load))
	// The set has a number for each model: those that were guessed are guessed again. A guess that is
	// too high would refuse queries that could wait, and nobody would find out.
	for i := range all.Services {
		s := &all.Services[i]
		if m := r.named[s.Name]; m != nil && !m.loaded && !m.keep {
			r.expectAgain(m, s, m.size)
		}
	}
}

// processBytes returns the memory of a process, of which what it shares with others counts in part; 0
// if that is not known.
func processBytes(pid int) int64 {
	return readKilobytes(fmt.Sprintf("/proc/%d/smaps_rollup", pid), "Pss:")
}

// hostMemory returns the memory of this machine, or of the control group of this process if that is
// less.
func hostMemory() int64 {
	all := readKilobytes("/proc/meminfo", "MemTotal:")
	for _, path := range []string{"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"} {
		text, err := os.ReadFile(path)
		if n, failed := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil && failed == nil && n > 0 {
			all = min(all, n)
		}
	}
	return all
}

// readKilobytes returns the bytes of a line of a file under /proc, 0 if it has none.
func readKilobytes(path, key string) int64 {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == key {
			n, _ := strconv.ParseInt(fields[1], 10, 64)
			return n << 10
		}
	}
	return 0
}

// now is the time as the set knows it.
func (r *Set) now() time.Duration { return time.Since(r.epoch) }
