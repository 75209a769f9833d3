package query

import (
	"net"
	"net/netip"
)

// networkBits are those of a network of IPv6: whoever has one address there has all of them.
const networkBits = 64

// Sender returns who a client at an address is: the address, of IPv6 its network, or none on a
// Unix socket. Each address of loopback is one by itself.
func Sender(a net.Addr) netip.Prefix {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.Prefix{}
	}
	ip := tcp.AddrPort().Addr().Unmap().WithZone("")
	bits := ip.BitLen()
	if ip.Is6() && !ip.IsLoopback() {
		bits = networkBits
	}
	network, _ := ip.Prefix(bits)
	return network
}
