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

// ErrNoRoom is returned for a service whose model does not fit what the others leave
// of a GPU's memory.
var ErrNoRoom = errors.New("the GPU has no room for the service")

// need is how much of a GPU's memory a service takes, and the sums that make it up.
type need struct {
	Service string
	Bytes   int64
	Sums    string
}

// unknownMemory stands where the driver does not know, as for GPUs that share
// the host's memory: then every service is admitted, and its worker reckons.
const unknownMemory = -1

// Ledger is who has how much of a part's memory.
type Ledger struct {
	device string
	memory int64 // free bytes, or unknownMemory

	mu struct {
		sync.Mutex
		taken []need
		left  int64
	}
}

// Room returns how many MiB are left, +Inf if that is unknown.
func (l *Ledger) Room() float64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.memory == unknownMemory {
		return math.Inf(1)
	}
	return float64(l.mu.left) / (1 << 20)
}

// Admit gives a service so many bytes, of which sums has in words what makes them
// up, or returns an ErrNoRoom. What it was given is taken back by release.
func (l *Ledger) Admit(service string, bytes int64, sums string) (release func(), err error) {
	n := need{service, bytes, sums}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.memory != unknownMemory && n.Bytes > l.mu.left {
		var others []string
		for _, n := range l.mu.taken {
			others = append(others, fmt.Sprintf("%s has %s", n.Service, models.MiB(n.Bytes)))
		}
		return nil, fmt.Errorf("%w %s: it needs %s (%s), and of the %s of %s %s: %s are left; "+
			"lower its cut or max_batch, give a neighbour a lower pinned_memory_limit, or move a service to another GPU or instance",
			ErrNoRoom, n.Service, models.MiB(n.Bytes), n.Sums, models.MiB(l.memory), l.device,
			cmp.Or(strings.Join(others, ", "), "nothing is taken"), models.MiB(l.mu.left))
	}
	l.mu.taken, l.mu.left = append(l.mu.taken, n), l.mu.left-n.Bytes
	return func() { l.release(n) }, nil
}

func (l *Ledger) release(n need) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if i := slices.Index(l.mu.taken, n); i >= 0 {
		l.mu.taken, l.mu.left = slices.Delete(l.mu.taken, i, i+1), l.mu.left+n.Bytes
	}
}

// String returns the account, a line for each service.
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
