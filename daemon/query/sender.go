package query

import (
	"net"
	"net/netip"
)

// networkBits is the prefix length that identifies an IPv6 client: a host usually has a
// whole /64 to choose addresses from.
const networkBits = 64

// Sender identifies a client by its address: the IPv4 address or the IPv6 /64 network. On
// loopback each address counts by itself. It is the zero prefix for a Unix socket.
func Sender(a net.Addr) netip.Prefix {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.Prefix{}
	}
	// Zones name interfaces of this host and do not identify a client.
	ip := tcp.AddrPort().Addr().Unmap().WithZone("")
	bits := ip.BitLen()
	if ip.Is6() && !ip.IsLoopback() {
		bits = networkBits
	}
	network, _ := ip.Prefix(bits)
	return network
}
