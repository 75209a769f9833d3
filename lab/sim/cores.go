package sim

import (
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/overlapd/overlapd/executor/emulated/device"
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

// Latency implements Device.
func (c *Cores) Latency(g models.Group) time.Duration { return c.scaled(g, c.Device.Latency(g)) }

// Sample implements Device.
func (c *Cores) Sample(g models.Group, r *rand.Rand) time.Duration {
	return c.scaled(g, c.Device.Sample(g, r))
}

// OperatorTimes implements Device.
func (c *Cores) OperatorTimes(whole models.Span) []int64 {
	times := slices.Clone(c.Device.OperatorTimes(whole))
	for i, t := range times {
		times[i] = int64(float64(t) * c.longer(whole.Share))
	}
	return times
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

// unitsOf returns into how many units a device is divided under a policy. Only overlap gives shares.
func unitsOf(d Device, policy string) int {
	switch d := d.(type) {
	case *Cores:
		return d.Units
	case *device.Model:
		if strings.HasPrefix(policy, "overlap") {
			return d.Units()
		}
	}
	return 1
}
