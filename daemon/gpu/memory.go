package gpu

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/overlapd/overlapd/models"
)

// Need is how much of a GPU's memory a service takes, and the sums that make it up.
type Need struct {
	Service string
	Bytes   int64
	Sums    string
}

// unknownMemory stands where the driver does not know, as for GPUs that share
// the host's memory: then every service is admitted, and its worker reckons.
const unknownMemory = -1

// Ledger is who has how much of a part's memory.
type Ledger struct {
	part *Part

	mu struct {
		sync.Mutex
		taken []Need
		left  int64
	}
}

// Ledger returns an empty account of the part's memory.
func (p *Part) Ledger() *Ledger {
	l := &Ledger{part: p}
	l.mu.left = p.memory
	return l
}

// Admit gives a service what it needs, or returns an ErrNoRoom with the sums.
func (l *Ledger) Admit(n Need) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.part.memory != unknownMemory && n.Bytes > l.mu.left {
		return fmt.Errorf("%w %s: it needs %s (%s), and of the %s of %s %s: %s are left; "+
			"lower its cut or max_batch, give a neighbour a lower pinned_memory_limit, or move a service to another GPU or instance",
			ErrNoRoom, n.Service, models.MiB(n.Bytes), n.Sums, models.MiB(l.part.memory), l.part.Text, l.others(), models.MiB(l.mu.left))
	}
	l.mu.taken, l.mu.left = append(l.mu.taken, n), l.mu.left-n.Bytes
	return nil
}

// Release takes back what a service was given.
func (l *Ledger) Release(n Need) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if i := slices.Index(l.mu.taken, n); i >= 0 {
		l.mu.taken, l.mu.left = slices.Delete(l.mu.taken, i, i+1), l.mu.left+n.Bytes
	}
}

func (l *Ledger) others() string {
	if len(l.mu.taken) == 0 {
		return "nothing is taken"
	}
	all := make([]string, len(l.mu.taken))
	for i, n := range l.mu.taken {
		all[i] = fmt.Sprintf("%s has %s", n.Service, models.MiB(n.Bytes))
	}
	return strings.Join(all, ", ")
}

// String returns the account, a line for each service.
func (l *Ledger) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var b strings.Builder
	free := "unknown"
	if l.part.memory != unknownMemory {
		free = models.MiB(l.part.memory)
	}
	fmt.Fprintf(&b, "memory of %s: %s free\n", l.part.Text, free)
	for _, n := range l.mu.taken {
		fmt.Fprintf(&b, "  %s  %s  (%s)\n", n.Service, models.MiB(n.Bytes), n.Sums)
	}
	if l.part.memory != unknownMemory {
		fmt.Fprintf(&b, "  %s are left\n", models.MiB(l.mu.left))
	}
	return b.String()
}
