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
	p := serve(t, config{services: []service{slowService(t, "queue_limit = 8")}})
	running := make(chan answer, 1)
	go func() { running <- p.infer("slow", one(1)) }()
	const leaving = 8
	for round := range 3 {
		for range leaving {
			p.abandon("slow", one(2)).Close()
		}
		want := (round + 1) * leaving
		p.eventually("the queue to be left", func() bool { return p.stats("slow").Times["fail"].Count == want })
	}
	if a := <-running; a.Status != 200 {
		t.Errorf("the query that stayed: %v", a)
	}
	if a := p.infer("slow", one(3)); a.Status != 200 || a.Outputs[0].Data[0] != 3 {
		t.Errorf("a query after them: %v", a)
	}
	// One batch may have begun before its client was seen to leave.
	if s := p.stats("slow"); s.Executions > 2+3 {
		t.Errorf("%d batches ran to their end for 2 clients that stayed", s.Executions)
	}
}

// A query whose client leaves while it runs stops at an operator boundary.
func TestClientLeavesARunningQuery(t *testing.T) {
	p := serve(t, config{services: []service{slowService(t, "")}})
	begin := time.Now()
	if a := p.infer("slow", one(1)); a.Status != 200 {
		t.Fatalf("got %v", a)
	}
	took := time.Since(begin)
	const leaving = 5
	for n := range leaving {
		c := p.abandon("slow", one(2))
		time.Sleep(took / 4) // it runs by now
		c.Close()
		p.eventually("the query to end", func() bool { return p.stats("slow").Times["fail"].Count == n+1 })
	}
	if s := p.stats("slow"); s.Executions > 1+leaving/2 {
		t.Errorf("%d of %d queries ran to their end though nobody waited", s.Executions-1, leaving)
	}
	if a := p.infer("slow", one(3)); a.Status != 200 || a.Outputs[0].Data[0] != 3 {
		t.Errorf("a query after them: %v", a)
	}
}
