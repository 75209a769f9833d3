package query

import (
	"net"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"
)

func from(ip string) net.Addr { return &net.TCPAddr{IP: net.ParseIP(ip), Port: 1} }

// placed takes a place that may be evicted, or fails the test.
func placed(t *testing.T, p *Places, a net.Addr, evicted *int) *Place {
	t.Helper()
	place := p.Take(a)
	if place == nil {
		t.Fatalf("%v has no place", a)
	}
	place.Silent(func() { *evicted++ })
	return place
}

func TestPlacesHaveLimits(t *testing.T) {
	p, evicted := NewPlaces(8), 0
	take := func(a net.Addr) *Place {
		place := placed(t, p, a, &evicted)
		place.Asked()
		return place
	}
	for n := range 4 {
		if take(from("10.0.0.1")).Spare {
			t.Fatalf("place %d of an address is a spare one", n)
		}
	}
	spare := take(from("10.0.0.1"))
	if !spare.Spare {
		t.Error("one address has more than half")
	}
	for n, a := range []net.Addr{from("2001:db8::1"), from("127.0.0.1"), from("::1"), &net.UnixAddr{Name: "/s"}} {
		if take(a).Spare {
			t.Errorf("%v has a spare place, the %dth", a, n)
		}
	}
	if !take(from("10.0.0.2")).Spare || p.Used() != 10 {
		t.Errorf("there are more places than the limit: %d are taken", p.Used())
	}
	for range sparePlaces - 2 {
		take(from("10.0.0.3"))
	}
	if p.Take(from("10.0.0.4")) != nil {
		t.Error("there are more spare places than there are")
	}
	spare.Leave()
	spare.Leave()
	if take(from("10.0.0.4")); p.Used() != 8+sparePlaces || evicted != 0 {
		t.Errorf("%d places are taken, %d were evicted", p.Used(), evicted)
	}
}

// IPv6 addresses of one network are one.
func TestPlacesOfANetwork(t *testing.T) {
	p, evicted := NewPlaces(4), 0
	placed(t, p, from("2001:db8::1"), &evicted)
	placed(t, p, from("2001:db8::2"), &evicted)
	if !placed(t, p, from("2001:db8::3"), &evicted).Spare {
		t.Error("a network has more than half")
	}
	if placed(t, p, from("2001:db8:0:1::1"), &evicted).Spare || placed(t, p, from("::ffff:10.0.0.1"), &evicted).Spare {
		t.Error("another one has no place")
	}
}

// Who asks nothing loses its place, the longest first: a spare one at once, any other
// after a while, and one that is crowded out by its own address only to that.
func TestSilentPlacesAreTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewPlaces(4)
		var gone []string
		take := func(name, ip string) *Place {
			place := p.Take(from(ip))
			if place == nil {
				t.Fatalf("%s has no place", name)
			}
			place.Silent(func() { gone = append(gone, name) })
			return place
		}
		take("a1", "10.0.0.1")
		take("a2", "10.0.0.1").Asked()
		take("b1", "10.0.0.2")
		take("b2", "10.0.0.2")
		if !take("c1", "10.0.0.3").Spare || len(gone) != 0 {
			t.Errorf("%v are gone at once", gone)
		}
		time.Sleep(silentTime)
		if take("b3", "10.0.0.2").Spare || len(gone) != 1 || gone[0] != "b1" {
			t.Errorf("%v are gone for one of the address of b", gone)
		}
		if take("c2", "10.0.0.3").Spare || len(gone) != 2 || gone[1] != "a1" {
			t.Errorf("%v are gone for one of c", gone)
		}
		for range sparePlaces - 1 {
			take("d", "10.0.0.4").Asked()
		}
		if gone = gone[2:]; len(gone) == 0 || gone[0] != "b2" {
			t.Errorf("%v are gone", gone)
		}
		before := p.Used()
		take("e", "10.0.0.4")
		take("f", "10.0.0.4")
		take("g", "10.0.0.4")
		if p.Used() > max(before, 4+sparePlaces) {
			t.Errorf("%d places are taken", p.Used())
		}
	})
}

// A client is known by its address, or network, also where that has no share of the places.
func TestSenders(t *testing.T) {
	senders := map[netip.Prefix]bool{}
	for _, ip := range []string{"10.0.0.1", "::ffff:10.0.0.1", "10.0.0.2", "2001:db8::1", "2001:db8::2", "127.0.0.1", "127.0.0.2", "::1"} {
		senders[Sender(from(ip))] = true
	}
	if len(senders) != 6 || senders[netip.Prefix{}] {
		t.Errorf("%d senders: %v", len(senders), senders)
	}
}
