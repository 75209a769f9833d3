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
