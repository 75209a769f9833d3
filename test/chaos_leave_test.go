package test

import (
	"context"
	"io"
	"math/rand/v2"
	"net"
	"time"
)

// leavers are clients that hang up, each in another phase of a request, by
// what they do last.
var leavers = map[string]func(c *chaos, random *rand.Rand){
	"half a header": func(c *chaos, _ *rand.Rand) {
		c.hangUp("POST /v2/models/slow/infer HTTP/1.1\r\nHost: local", 0, 0)
	},
	"half a body": func(c *chaos, random *rand.Rand) {
		text := c.request("merged", sum(random, 64))
		c.hangUp(text[:len(text)*2/3], 0, 0)
	},
	"waiting": func(c *chaos, random *rand.Rand) {
		c.hangUp(c.request("slow", one(random.Float64())), time.Duration(random.Int64N(int64(5*time.Millisecond))), 0)
	},
	"running": func(c *chaos, random *rand.Rand) {
		c.hangUp(c.request("slow", one(random.Float64())), time.Duration(random.Int64N(int64(100*time.Millisecond))), 0)
	},
	"half an answer": func(c *chaos, random *rand.Rand) {
		c.hangUp(c.request("merged", sum(random, wideRows)), 0, 1000)
	},
	"half a scrape":   func(c *chaos, _ *rand.Rand) { c.hangUp(get("/metrics"), 0, 500) },
	"half a page":     func(c *chaos, _ *rand.Rand) { c.hangUp(get("/"), 0, 500) },
	"half a status":   func(c *chaos, _ *rand.Rand) { c.hangUp(get("/overlapd/status"), 0, 100) },
	"half a timeline": func(c *chaos, _ *rand.Rand) { c.hangUp(get("/overlapd/timeline"), 0, 100) },
	"a live page":     func(c *chaos, _ *rand.Rand) { c.hangUp(get("/overlapd/events"), 0, 10) },
	"a gRPC call": func(c *chaos, random *rand.Rand) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Duration(1+random.Int64N(int64(30*time.Millisecond))))
		defer cancel()
		client, err := newGRPCCaller(c.p.grpcAddress())
		if err != nil {
			return
		}
		defer client.close()
		client.askWithin(ctx, "slow", one(random.Float64()))
	},
	"half a gRPC frame": func(c *chaos, _ *rand.Rand) {
		c.hangUpAt(c.p.grpcAddress(), "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x12\x04\x00\x00", 0, 0)
	},
}

// wideRows make an answer that does not fit into the buffers of a socket.
const wideRows = 4096

// leaverPause is how long a client that leaves waits before the next leaves.
const leaverPause = 40 * time.Millisecond

// leave has one client after the other hang up.
func (c *chaos) leave(name string, random *rand.Rand) {
	for !c.over.Load() {
		leavers[name](c, random)
		c.ledger.end("leavers", name)
		c.pause(random, leaverPause)
	}
}

// request returns a query as it is sent.
func (c *chaos) request(service string, q query) string {
	body, head, err := q.binary()
	if err != nil {
		c.ledger.fault("a request cannot be made: %v", err)
	}
	return string(post(service, body, head))
}

// hangUp sends a text, waits, reads some bytes and resets the connection.
func (c *chaos) hangUp(text string, wait time.Duration, read int64) {
	c.hangUpAt(c.p.address, text, wait, read)
}

func (c *chaos) hangUpAt(address, text string, wait time.Duration, read int64) {
	const patient = 2 * time.Second // it leaves in any case
	conn, err := net.DialTimeout("tcp", address, patient)
	if err != nil {
		return
	}
	defer conn.Close()
	tcp := conn.(*net.TCPConn)
	tcp.SetLinger(0)
	tcp.SetReadBuffer(4 << 10)
	conn.SetDeadline(time.Now().Add(patient))
	if _, err := io.WriteString(conn, text); err != nil {
		return
	}
	time.Sleep(wait)
	io.CopyN(io.Discard, conn, read)
}
