package test

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// load starts all clients.
func (c *chaos) load() {
	c.over.Store(false)
	start := func(service, how string, n int, f func(random *rand.Rand)) {
		for i := range n {
			random := rand.New(rand.NewPCG(c.seed, uint64(len(service)+1000*len(how)+i)))
			c.clients.Go(func() { f(random) })
		}
	}
	ask := func(service string, kind int, mean time.Duration, n int) {
		start(service, "asks", n, func(random *rand.Rand) { c.ask(service, kind, mean, random) })
	}
	for kind := range 3 { // JSON, binary, gRPC
		ask("steady", kind, 30*time.Millisecond, 1)
		ask("merged", kind, 20*time.Millisecond, 3)
		ask("fragile", kind, 30*time.Millisecond, 2)
	}
	ask("slow", 0, 150*time.Millisecond, 1)
	ask("slow", 2, 150*time.Millisecond, 1)
	ask("burst", 1, 100*time.Millisecond, 1)
	for name := range leavers {
		start("leavers", name, 1, func(random *rand.Rand) { c.leave(name, random) })
	}
}

// end stops all clients, and waits for the last answers.
func (c *chaos) end() {
	c.over.Store(true)
	c.clients.Wait()
	client.CloseIdleConnections()
	c.over.Store(false)
}

// once asks a service on a connection of its own.
func (c *chaos) once(service string, q query, check func(query, answer) error, may []string) (how string) {
	return c.onceBy(&httpCaller{address: c.p.address, binary: true}, service, q, check, may)
}

// onceBy is once with a client that asks nothing else.
func (c *chaos) onceBy(client caller, service string, q query, check func(query, answer) error, may []string) (how string) {
	a := client.ask(service, q)
	if err := client.close(); a.Err == nil {
		a.Err = err
	}
	how, err := judge(q, a, check, may)
	if c.notTaken(a) {
		how, err = "no connection", nil
	}
	if c.ledger.end(service, how); err != nil {
		c.ledger.fault("%s: asked once: %v", service, err)
	}
	return how
}

// never is the check of a query that may have no answer.
func never(q query, a answer) error { return fmt.Errorf("it was answered: %v", a.Outputs) }

// ask has a client ask a service again and again, with pauses.
func (c *chaos) ask(service string, kind int, mean time.Duration, random *rand.Rand) {
	may := workerRefusals
	if service == "steady" {
		may = refusals
	}
	new := func() (caller, error) { return &httpCaller{address: c.p.address, binary: kind == 1}, nil }
	if kind == 2 {
		new = func() (caller, error) { return newGRPCCaller(c.p.grpcAddress()) }
	}
	client, err := new()
	for n := 0; !c.over.Load(); n++ {
		if err != nil {
			c.ledger.fault("%s: %v", service, err)
			return
		}
		q, check := one(float64(random.Float32())), checkOne
		if service == "steady" || service == "merged" {
			q, check = sum(random, 1+random.Int64N(3)), checkSum
		}
		if service == "fragile" {
			q, check = good(random.IntN(numbers)), checkQuotient
		}
		q.ID = fmt.Sprintf("%s %d %x %d", service, kind, random.Uint32(), n)
		proven, sent := client.proven(), time.Now()
		a := client.ask(service, q)
		how, fault := judge(q, a, check, may)
		if !proven && c.notTaken(a) {
			how, fault = "no connection", nil
		}
		if service == "fragile" && a.Status == 500 {
			fault = fmt.Errorf("it pays for what others have asked: %v", a)
		}
		if fault != nil {
			c.ledger.fault("%s, client %d, after %v: %v", service, kind, time.Since(sent), fault)
		}
		c.ledger.end(service, how)
		if service == "steady" && how != "no connection" {
			c.ledger.time(ending{sent, time.Since(sent), how == "ok"})
		}
		if a.Err != nil {
			client.close()
			client, err = new()
		}
		c.pause(random, mean)
	}
	if err := client.close(); err != nil {
		c.ledger.fault("%s: %v", service, err)
	}
}
