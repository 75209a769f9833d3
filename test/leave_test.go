package test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"testing"
	"time"
)

// abandon sends a query and returns the connection, which the caller closes
// without waiting for the answer.
func (p *process) abandon(service string, q query) net.Conn {
	p.t.Helper()
	body, err := json.Marshal(q)
	if err != nil {
		p.t.Fatal(err)
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "POST /v2/models/%s/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s", service, len(body), body)
	c, err := net.Dial("tcp", p.address)
	if err != nil {
		p.t.Fatal(err)
	}
	if _, err := c.Write(b.Bytes()); err != nil {
		p.t.Fatal(err)
	}
	return c
}

// Clients that leave while their queries wait free their places in the queue,
// and those queries never run.
func TestClientsLeaveTheQueue(t *testing.T) {
	t.Parallel()
	p := serve(t, config{services: []service{slowService(t, "queue_limit = 8")}})
	running := make(chan answer, 1)
	go func() { running <- p.infer("slow", one(1)) }()
	const leaving, rounds = 8, 3
	for round := range rounds {
		for range leaving {
			p.abandon("slow", one(2)).Close()
		}
		p.eventually("the queue to be left", func() bool {
			s := p.stats("slow")
			return s.Times["fail"].Count+s.Times["success"].Count >= (round+1)*leaving
		})
	}
	if a := <-running; a.Status != 200 {
		t.Errorf("the query that stayed: %v", a)
	}
	if a := p.infer("slow", one(3)); a.Status != 200 || a.Outputs[0].Data[0] != 3 {
		t.Errorf("a query after them: %v", a)
	}
	// A batch may have begun, and even ended, before its client was seen to
	// leave.
	if s := p.stats("slow"); s.Executions > 2+leaving {
		t.Errorf("%d batches ran to their end for 2 clients that stayed and %d that left", s.Executions, rounds*leaving)
	}
}

// A query whose client leaves while it runs stops at an operator boundary.
func TestClientLeavesARunningQuery(t *testing.T) {
	t.Parallel()
	p := serve(t, config{services: []service{slowService(t, "")}})
	begin := time.Now()
	if a := p.infer("slow", one(1)); a.Status != 200 {
		t.Fatalf("got %v", a)
	}
	took := time.Since(begin)
	// How fast the machine is now is anybody's guess: some may end before
	// their client leaves.
	const enough, tries = 3, 50
	ended := func() (answered, given, total int) {
		s := p.stats("slow")
		answered, given = s.Times["success"].Count, s.Times["fail"].Count
		return answered, given, answered + given
	}
	for n := 1; n <= tries; n++ {
		c := p.abandon("slow", one(2))
		time.Sleep(took / 8)
		c.Close()
		p.eventually("the query to end", func() bool { _, _, total := ended(); return total == n+1 })
		if _, given, _ := ended(); given == enough {
			break
		}
	}
	answered, given, _ := ended()
	if s := p.stats("slow"); given < enough || s.Executions >= answered+given {
		t.Errorf("%d of %d queries were given up, and %d batches ran to their end", given, answered+given, s.Executions)
	}
	if a := p.infer("slow", one(3)); a.Status != 200 || a.Outputs[0].Data[0] != 3 {
		t.Errorf("a query after them: %v", a)
	}
}
