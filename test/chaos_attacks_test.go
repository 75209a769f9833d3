package test

import (
	"encoding/binary"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/overlapd/overlapd/daemon/rpc/inference"
)

const (
	halfConnections = 40
	halfCalls       = 128 // as many as a connection may have open
	resetters       = 3   // connections
	pageReaders     = 4
	halfAdmins      = 32 // twice as many as have a place at the admin socket
)

// frame returns one of HTTP/2 (RFC 9113).
func frame(kind, flags byte, stream uint32, payload []byte) []byte {
	b := []byte{byte(len(payload) >> 16), byte(len(payload) >> 8), byte(len(payload)), kind, flags}
	return append(binary.BigEndian.AppendUint32(b, stream), payload...)
}

// headers returns those that begin a call to infer, and further ones, each as it is (RFC
// 7541, section 6.2.2).
func headers(stream uint32, more ...string) []byte {
	const kind, endHeaders = 1, 4
	var fields []byte
	for i, s := range append([]string{":method", "POST", ":scheme", "http", ":path", inference.GRPCInferenceService_ModelInfer_FullMethodName,
		":authority", "localhost", "content-type", "application/grpc", "te", "trailers"}, more...) {
		if i%2 == 0 {
			fields = append(fields, 0)
		}
		fields = append(append(fields, byte(len(s))), s...)
	}
	return frame(kind, endHeaders, stream, fields)
}

// attack opens a connection for frames, on which nobody looks at the answers. It is nil if
// there is none.
func (c *chaos) attack(until time.Time) net.Conn {
	conn, err := net.DialTimeout("tcp", c.p.grpcAddress(), time.Second)
	if err != nil {
		return nil
	}
	conn.SetDeadline(until)
	conn.Write(append([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), frame(4, 0, 0, nil)...)) // empty settings
	go io.Copy(io.Discard, conn)
	return conn
}

// halves begins thousands of calls of which only the headers come.
func (c *chaos) halves(d *disturbance) {
	for range fewer(halfConnections) {
		conn := c.attack(time.Now().Add(patience))
		if conn == nil {
			break
		}
		defer conn.Close()
		var all []byte
		for i := range uint32(halfCalls) {
			all = append(all, headers(2*i+1, "authorization", "Bearer "+token)...)
		}
		conn.Write(all)
	}
	c.neighbours(d)
}

// resets begins calls without a token and resets them at once. A connection that is sent
// away comes back.
func (c *chaos) resets(d *disturbance) {
	const kind, cancelled = 3, 8
	var connections, calls atomic.Int64
	var attackers sync.WaitGroup
	end := time.Now().Add(d.lasts)
	for range resetters {
		attackers.Go(func() {
			for ; time.Now().Before(end); c.rest(glance) {
				conn := c.attack(end)
				if conn == nil {
					continue
				}
				connections.Add(1)
				for stream := uint32(1); ; stream += 2 {
					if _, err := conn.Write(append(headers(stream), frame(kind, 0, stream, []byte{0, 0, 0, cancelled})...)); err != nil {
						break
					}
					calls.Add(1)
				}
				conn.Close()
			}
		})
	}
	c.neighbours(d)
	attackers.Wait()
	c.note("resets: %d calls on %d connections", calls.Load(), connections.Load())
}

// neighbours asks the service that is let alone over both protocols, each time on a new
// connection, for as long as an attack lasts. There is memory for it, unless others hoard.
func (c *chaos) neighbours(d *disturbance) {
	answered := 0
	for begin := time.Now(); time.Since(begin) < d.lasts && !c.over.Load(); c.rest(probePause) {
		overGRPC, err := newGRPCCaller(c.p.grpcAddress())
		if err != nil {
			c.ledger.fault("%s: %v", d.name, err)
			return
		}
		for _, client := range []caller{&httpCaller{address: c.p.address}, overGRPC} {
			sent := time.Now()
			switch c.onceBy(client, "steady", sum(d.random, 1), checkSum, refusals) {
			case "ok":
				answered++
			case "no_memory":
				if !c.within(&c.mu.taken, sent) && !c.within(&c.mu.taken, time.Now()) {
					c.ledger.fault("%s: there is no memory for a neighbour", d.name)
				}
			}
		}
	}
	c.note("%s: %d queries of neighbours were answered, for %v", d.name, answered, d.lasts)
}

// pages asks for the heaviest page without end, and holds connections of the admin socket
// with half requests, of which half get no place. Who may administer the daemon is answered.
func (c *chaos) pages(d *disturbance) {
	var readers sync.WaitGroup
	defer readers.Wait()
	for range pageReaders {
		readers.Go(func() {
			for begin := time.Now(); time.Since(begin) < d.lasts; c.rest(glance) {
				c.hangUp(get("/overlapd/timeline"), 0, 1<<20)
			}
		})
	}
	var halves []net.Conn
	for range halfAdmins {
		if conn, err := net.Dial("unix", c.adminSocket()); err == nil {
			defer conn.Close()
			io.WriteString(conn, "POST /rel")
			halves = append(halves, conn)
		}
	}
	c.probe(d, "unix", c.adminSocket(), map[string][]int{"/config": {200}})
	held := 0
	for _, conn := range halves {
		conn.SetReadDeadline(time.Now().Add(straggler))
		if _, err := conn.Read(make([]byte, 1)); timedOut(err) {
			held++
		}
	}
	c.note("pages: %d of %d half requests still hold a connection of the admin socket", held, len(halves))
	if held > halfAdmins/2 {
		c.ledger.fault("%s: %d half requests hold a connection of the admin socket", d.name, held)
	}
}

const (
	hasty      = 400 * time.Millisecond // a timeout, far shorter than the target of images
	hastyRow   = 5                      // answers one after the other show that it is served
	recoveries = time.Minute            // after a stop
)

// freeze stops a worker for so short that it lives and for so long that it does not, while
// clients ask with a timeout that is shorter than the stop. What the daemon learns from that
// may not keep it from trying again: soon the service is served as before.
func (c *chaos) freeze(d *disturbance) {
	if !c.hurried() {
		c.note("freeze: the machine is too busy to keep a timeout of %v; not judged", hasty)
		return
	}
	for _, lasts := range []time.Duration{hasty * 3 / 2, 4 * time.Second} {
		pid := c.p.worker("images")
		stopped := sendSignal(pid, syscall.SIGSTOP) // which fails if there is none
		for begin := time.Now(); time.Since(begin) < lasts; {
			c.hurry()
		}
		continued := sendSignal(pid, syscall.SIGCONT)
		begin := time.Now()
		if !c.hurried() {
			c.ledger.fault("images: %v after its worker was stopped for %v it is not served", recoveries, lasts)
		}
		c.note("freeze: images, process %d, for %v: %v, %v, served again after %v", pid, lasts, stopped, continued, time.Since(begin))
	}
}

// hurried asks until a row of queries are answered in time, or reports that none were.
func (c *chaos) hurried() bool {
	row := 0
	for begin := time.Now(); row < hastyRow && time.Since(begin) < recoveries; c.rest(glance) {
		if row++; !c.hurry() {
			row = 0
		}
	}
	return row == hastyRow
}

// hurry asks for an image that the client does not wait for long, and reports whether it
// has come.
func (c *chaos) hurry() bool {
	q := image(8)
	q.Parameters = map[string]any{"timeout": hasty.Microseconds()}
	return c.once("images", q, checkImage, workerRefusals) == "ok"
}
