package sim

import (
	"math/rand/v2"
	"time"

	"github.com/overlapd/overlapd/models"
)

// Cores is a CPU: a device of several units, whose batches each run on a share of them. What Device
// says is how long they take on one.
type Cores struct {
	Device
	Units int

	// Serial is the part of a batch's work that more cores do not make shorter (Amdahl).
	Serial float64

	// Contention is by what part of its time a span takes longer while all other units are busy,
	// which compete for memory and caches.
	Contention float64
}

// units implements divided.
func (c *Cores) units() int { return c.Units }

// on implements divided.
func (c *Cores) on(share int) Device { return &cores{c, share} }

// Latency implements Device, for all cores.
func (c *Cores) Latency(g models.Group) time.Duration { return c.scaled(g, c.Device.Latency(g)) }

// Sample implements Device.
func (c *Cores) Sample(g models.Group, r *rand.Rand) time.Duration {
	return c.scaled(g, c.Device.Sample(g, r))
}

// OperatorTimes implements Device, for all cores.
func (c *Cores) OperatorTimes(model, size, seqLen int) []int64 {
	return c.on(0).OperatorTimes(model, size, seqLen)
}

func (c *Cores) scaled(g models.Group, took time.Duration) time.Duration {
	others := float64(len(g.Beside)) / float64(max(c.Units-1, 1))
	return time.Duration(float64(took) * c.longer(g.Spans[0].Share) * (1 + c.Contention*others))
}

// longer returns how many times as long as on one core a batch takes on a share.
func (c *Cores) longer(share int) float64 {
	if share == 0 {
		share = c.Units
	}
	return c.Serial + (1-c.Serial)/float64(share)
}

// cores is a share of a CPU, as a device of its own.
type cores struct {
	*Cores
	share int
}

func (c *cores) units() int { return 1 }

func (c *cores) Latency(g models.Group) time.Duration {
	return time.Duration(float64(c.Device.Latency(g)) * c.longer(c.share))
}

func (c *cores) Sample(g models.Group, r *rand.Rand) time.Duration {
	return time.Duration(float64(c.Device.Sample(g, r)) * c.longer(c.share))
}

func (c *cores) OperatorTimes(model, size, seqLen int) []int64 {
	var times []int64
	for _, t := range c.Device.OperatorTimes(model, size, seqLen) {
		times = append(times, int64(float64(t)*c.longer(c.share)))
	}
	return times
}

// divided is a device of several units.
type divided interface {
	units() int
	on(share int) Device
}

// unitsOf returns how many units a device has.
func unitsOf(d Device) int {
	if of, ok := d.(divided); ok {
		return of.units()
	}
	return 1
}

// onShare returns what a share of a device is, 0 for all of it.
func onShare(d Device, share int) Device {
	if of, ok := d.(divided); ok && share > 0 {
		return of.on(share)
	}
	return d
}
