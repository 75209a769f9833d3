package query

import (
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"
)

const (
	// addressShare is the part of all places, one in so many, that the connections
	// of one address may have, or of one network, see [Sender]. Loopback has no share: all
	// clients of this host come from there, and those of a proxy.
	addressShare = 2

	// sparePlaces are more places for when the others are taken. Only probes are
	// answered there: whether the daemon lives and is ready must not depend on how
	// many clients there are. A newcomer takes that of the one that has asked nothing
	// for longest, so there are as many as may come while a probe sends its request.
	sparePlaces = 64

	// sparePause is how long whoever accepts rests after a spare place is taken: the oldest of
	// them has sparePlaces times as long to ask, however many come at once, and the
	// processor reads meanwhile what others have asked.
	sparePause = 100 * time.Microsecond

	// silentTime is how long a connection may ask nothing before another that finds
	// no place may have its own.
	silentTime = time.Second
)

// Places bounds the connections that are open, of all protocols together
// (limits.connections). Nobody waits for one.
type Places struct {
	limit int
	mu    struct {
		sync.Mutex
		taken, spare int
		from         map[netip.Prefix]*origin
		silent       []*Place // oldest first
	}
}

// origin is the connections of one address, but for those on spare places, and its share of
// each memory.
type origin struct {
	places int
	shares map[*Budget]*Budget
}

// Place is that of a connection. On one that is Spare only probes are answered.
type Place struct {
	Spare bool

	of    *Places
	from  netip.Prefix // of no bits if it has no share, as on a Unix socket
	since time.Time
	evict func()
	left  bool // under the lock of its places
}

// NewPlaces returns places of which none is taken.
func NewPlaces(limit int) *Places {
	p := &Places{limit: limit}
	p.mu.from = make(map[netip.Prefix]*origin)
	return p
}

// Used returns how many are taken.
func (p *Places) Used() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.taken + p.mu.spare
}

// Take returns a place for a connection, which may be that of another that asks
// nothing, or nil if there is none.
func (p *Places) Take(from net.Addr) *Place {
	place := &Place{of: p, from: Sender(from), since: time.Now()}
	if place.from.Addr().IsLoopback() {
		place.from = netip.Prefix{}
	}
	p.mu.Lock()
	victim, ok := p.takeLocked(place)
	p.mu.Unlock()
	if victim != nil {
		victim.evict()
	}
	if !ok {
		return nil
	}
	if place.Spare {
		time.Sleep(sparePause)
	}
	return place
}

// takeLocked finds room for a place, and whose it was.
func (p *Places) takeLocked(place *Place) (victim *Place, ok bool) {
	all := p.mu.from[place.from]
	crowded := place.from.IsValid() && all != nil && all.places >= max(p.limit/addressShare, 1)
	if crowded || p.mu.taken >= p.limit {
		victim = p.silentLocked(func(v *Place) bool {
			return !v.Spare && place.since.Sub(v.since) >= silentTime && (!crowded || v.from == place.from)
		})
		if place.Spare = victim == nil; place.Spare && p.mu.spare >= sparePlaces {
			if victim = p.silentLocked(func(v *Place) bool { return v.Spare }); victim == nil {
				return nil, false
			}
		}
	}
	if victim != nil {
		victim.leaveLocked()
	}
	if place.Spare {
		p.mu.spare++
		return victim, true
	}
	if all = p.mu.from[place.from]; all == nil { // the victim may have been the last
		all = &origin{shares: make(map[*Budget]*Budget)}
		p.mu.from[place.from] = all
	}
	p.mu.taken++
	all.places++
	return victim, true
}

// Memory returns a budget of which each connection may always have so much.
func (p *Places) Memory(each int64) *Budget {
	return NewBudget(each * reservedShare * int64(p.limit+sparePlaces))
}

// Share returns the connection's share of a memory, which is one of what all connections of
// its address have, but for loopback. What is reserved of the memory is divided evenly
// among all connections that may be open.
func (p *Place) Share(of *Budget) *Budget {
	p.of.mu.Lock()
	defer p.of.mu.Unlock()
	even := of.Limit() / reservedShare / int64(p.of.limit+sparePlaces)
	if all := p.of.mu.from[p.from]; all != nil && p.from.IsValid() {
		if all.shares[of] == nil {
			all.shares[of] = of.Share(0)
		}
		of = all.shares[of]
	}
	return of.Share(even)
}

// silentLocked returns the oldest connection of some that has asked nothing, or nil.
func (p *Places) silentLocked(which func(*Place) bool) *Place {
	if i := slices.IndexFunc(p.mu.silent, which); i >= 0 {
		return p.mu.silent[i]
	}
	return nil
}

// Silent lets the connection be closed by evict, from another goroutine, if another one
// needs its place. That ends when it has asked something.
func (p *Place) Silent(evict func()) {
	p.of.mu.Lock()
	defer p.of.mu.Unlock()
	if p.evict = evict; !p.left {
		p.of.mu.silent = append(p.of.mu.silent, p)
	}
}

// Asked is called when the connection has asked something.
func (p *Place) Asked() {
	p.of.mu.Lock()
	defer p.of.mu.Unlock()
	p.askedLocked()
}

func (p *Place) askedLocked() {
	all := &p.of.mu.silent
	if i := slices.Index(*all, p); i >= 0 {
		*all = slices.Delete(*all, i, i+1)
	}
}

// Leave gives the place back, once.
func (p *Place) Leave() {
	p.of.mu.Lock()
	defer p.of.mu.Unlock()
	p.leaveLocked()
}

func (p *Place) leaveLocked() {
	if p.left {
		return
	}
	p.left = true
	p.askedLocked()
	if p.Spare {
		p.of.mu.spare--
		return
	}
	p.of.mu.taken--
	all := p.of.mu.from[p.from]
	if all.places--; all.places == 0 {
		delete(p.of.mu.from, p.from)
	}
}
