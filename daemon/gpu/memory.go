package gpu

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"

	"github.com/overlapd/overlapd/models"
)

// ErrNoRoom is returned for a service whose model does not fit into the GPU memory that the
// other services leave.
var ErrNoRoom = errors.New("the GPU has no memory for the service")

// need is the GPU memory of a service. Sums is its breakdown in words.
type need struct {
	Service string
	Bytes   int64
	Sums    string
}

// unknownMemory is used when the driver does not report memory, as for GPUs that share the
// host's. Every service is then admitted, and its worker checks for itself.
const unknownMemory = -1

// Ledger accounts for the memory of a part by service. Its methods may be called from any
// goroutine.
type Ledger struct {
	device string

	// memory is the free memory in bytes, or unknownMemory.
	memory int64

	mu struct {
		sync.Mutex
		taken []need
		left  int64
	}
}

// Room returns the remaining memory in MiB, or +Inf if it is unknown.
func (l *Ledger) Room() float64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.memory == unknownMemory {
		return math.Inf(1)
	}
	return float64(l.mu.left) / (1 << 20)
}

// Admit reserves memory for a service. sums is the breakdown in words, for errors. It
// returns a function that releases the memory, or ErrNoRoom.
func (l *Ledger) Admit(service string, bytes int64, sums string) (release func(), err error) {
	n := need{service, bytes, sums}
	l.mu.Lock()
	defer l.mu.Unlock()
	// The error lists the other services, because the remedy is often with one of them.
	if l.memory != unknownMemory && n.Bytes > l.mu.left {
		var others []string
		for _, n := range l.mu.taken {
			others = append(others, fmt.Sprintf("%s has %s", n.Service, models.MiB(n.Bytes)))
		}
		return nil, fmt.Errorf("%w %s: it needs %s (%s), and of the %s of %s %s: %s are left; "+
			"lower its cut or max_batch, lower pinned_memory_limit of another service, or move a service to another GPU or instance",
			ErrNoRoom, n.Service, models.MiB(n.Bytes), n.Sums, models.MiB(l.memory), l.device,
			cmp.Or(strings.Join(others, ", "), "all is free"), models.MiB(l.mu.left))
	}
	l.mu.taken, l.mu.left = append(l.mu.taken, n), l.mu.left-n.Bytes
	return func() { l.release(n) }, nil
}

// release gives back the memory of a service. Further calls have no effect.
func (l *Ledger) release(n need) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if i := slices.Index(l.mu.taken, n); i >= 0 {
		l.mu.taken, l.mu.left = slices.Delete(l.mu.taken, i, i+1), l.mu.left+n.Bytes
	}
}

// String lists the memory by service, one a line.
func (l *Ledger) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var b strings.Builder
	free := "unknown"
	if l.memory != unknownMemory {
		free = models.MiB(l.memory)
	}
	fmt.Fprintf(&b, "memory of %s: %s free\n", l.device, free)
	for _, n := range l.mu.taken {
		fmt.Fprintf(&b, "  %s  %s  (%s)\n", n.Service, models.MiB(n.Bytes), n.Sums)
	}
	if l.memory != unknownMemory {
		fmt.Fprintf(&b, "  %s are left\n", models.MiB(l.mu.left))
	}
	return b.String()
}
