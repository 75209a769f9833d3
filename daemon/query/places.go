package query

import (
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"
)

const (
	// addressShare is the divisor for the places that one address or network may have, see
	// [Sender]: half of them. Loopback is exempt because all local clients share it,
	// including those behind a proxy.
	addressShare = 2

	// sparePlaces are extra places for when the others are taken. They serve only probes:
	// liveness and readiness must not depend on the number of clients. A new connection
	// evicts the one that has been silent longest, so the number bounds how many
	// connections may arrive while a probe sends its request.
	sparePlaces = 64

	// sparePause is how long the accept loop pauses after it handed out a spare place. The
	// oldest spare connection thus has at least sparePlaces times sparePause (6.4ms) to
	// send its request, however many connections arrive.
	sparePause = 100 * time.Microsecond

	// silentTime is how long a connection may stay silent before another one may take its
	// place.
	silentTime = time.Second
)

// Places limits the open connections over all protocols (limits.connections). Take never
// waits for a place. When all are taken it evicts a silent connection or hands out a spare
// place.
type Places struct {
	limit int
	mu    struct {
		sync.Mutex
		// taken and spare count the places in use.
		taken, spare int

		// from has an entry for each address with at least one place; the invalid prefix
		// stands for all connections without a share.
		from map[netip.Prefix]*origin

		// silent lists the connections that have sent no request yet, oldest first.
		silent []*Place
	}
}

// origin holds what the connections of one address have in common: the number of places,
// without spare ones, and one share of each memory budget.
type origin struct {
	places int
	shares map[*Budget]*Budget
}

// Place is the place of one connection. Only probes are answered on one that is Spare.
type Place struct {
	Spare bool

	of *Places

	// from is invalid if the connection has no share, as on loopback or a Unix socket.
	from  netip.Prefix
	since time.Time
	evict func()

	// left is guarded by the mutex of the Places.
	left bool
}

// NewPlaces returns limit free places, and the spare ones.
func NewPlaces(limit int) *Places {
	p := &Places{limit: limit}
	p.mu.from = make(map[netip.Prefix]*origin)
	return p
}

// Used returns the number of open connections.
func (p *Places) Used() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.taken + p.mu.spare
}

// Take returns a place for a new connection, or nil if there is none. It may evict a silent
// connection, and it sleeps for sparePause if it hands out a spare place.
func (p *Places) Take(from net.Addr) *Place {
	place := &Place{of: p, from: Sender(from), since: time.Now()}
	if place.from.Addr().IsLoopback() {
		place.from = netip.Prefix{}
	}
	p.mu.Lock()
	victim, ok := p.takeLocked(place)
	p.mu.Unlock()
	// Outside the lock, because evict is the caller's code.
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

// takeLocked assigns a place and returns the connection that was evicted for it, if any. An
// address that has used up its share may only evict a connection of its own.
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
	// The victim may have been the last connection of this address, so its entry may be
	// gone.
	if all = p.mu.from[place.from]; all == nil {
		all = &origin{shares: make(map[*Budget]*Budget)}
		p.mu.from[place.from] = all
	}
	p.mu.taken++
	all.places++
	return victim, true
}

// Memory returns a budget large enough that each connection can always hold the given
// number of bytes.
func (p *Places) Memory(each int64) *Budget {
	return NewBudget(each * reservedShare * int64(p.limit+sparePlaces))
}

// Share returns the connection's share of a memory budget. It is a share of its address's
// share, so that opening more connections does not get a client more memory; loopback is
// exempt. The reserved part of the budget is divided evenly among all connections that may
// be open.
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

// silentLocked returns the longest silent connection for which the callback returns true,
// or nil.
func (p *Places) silentLocked(which func(*Place) bool) *Place {
	if i := slices.IndexFunc(p.mu.silent, which); i >= 0 {
		return p.mu.silent[i]
	}
	return nil
}

// Silent marks the connection as one that has sent no request. Until Asked is called,
// another connection may take its place; evict is then called from another goroutine and
// must close the connection.
func (p *Place) Silent(evict func()) {
	p.of.mu.Lock()
	defer p.of.mu.Unlock()
	if p.evict = evict; !p.left {
		p.of.mu.silent = append(p.of.mu.silent, p)
	}
}

// Asked marks the connection as one that has sent a request, which protects it from
// eviction.
func (p *Place) Asked() {
	p.of.mu.Lock()
	defer p.of.mu.Unlock()
	p.askedLocked()
}

// askedLocked removes p from the silent connections. The lock of its Places is held.
func (p *Place) askedLocked() {
	all := &p.of.mu.silent
	if i := slices.Index(*all, p); i >= 0 {
		*all = slices.Delete(*all, i, i+1)
	}
}

// Leave frees the place. Further calls have no effect.
func (p *Place) Leave() {
	p.of.mu.Lock()
	defer p.of.mu.Unlock()
	p.leaveLocked()
}

// leaveLocked frees the place, unless it was evicted before.
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
