package test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"

	"github.com/overlapd/overlapd/daemon/rpc/inference"
)

// disturbed are the services whose workers are killed and stopped.
var disturbed = []string{"merged", "slow", "burst"}

// victim returns a worker that may be disturbed, 0 if it is not there.
func (c *chaos) victim(random *rand.Rand) (service string, pid int) {
	service = disturbed[random.IntN(len(disturbed))]
	return service, c.p.worker(service)
}

// kill ends a worker.
func (c *chaos) kill(d *disturbance) {
	service, pid := c.victim(d.random)
	if pid == 0 {
		c.note("kill: %s is not there", service)
		return
	}
	c.note("kill: %s, process %d: %v", service, pid, sendSignal(pid, syscall.SIGKILL))
}

// stop makes a worker hang, for less or for more than the watchdog allows. The
// others go on without it.
func (c *chaos) stop(d *disturbance) {
	service, pid := c.victim(d.random)
	if pid == 0 {
		c.note("stop: %s is not there", service)
		return
	}
	c.note("stop: %s, process %d, for %v: %v", service, pid, d.lasts, sendSignal(pid, syscall.SIGSTOP))
	time.Sleep(d.lasts)
	c.note("continue: %s, process %d: %v", service, pid, sendSignal(pid, syscall.SIGCONT))
}

// runOn asks one service for what does not end, again and again. Each is refused by
// its deadline, the service is back soon after it, and the others go on without it.
func (c *chaos) runOn(d *disturbance) {
	c.note("endless: queries that do not end, for %v", d.lasts)
	for end := time.Now().Add(d.lasts); time.Now().Before(end); {
		c.once("loop", one(endless), never, workerRefusals)
		time.Sleep(time.Duration(d.random.Int64N(int64(100 * time.Millisecond))))
	}
}

// fillDisk leaves no byte of the state folder's file system, or where it has
// none of its own, forbids the daemon to write to any file.
func (c *chaos) fillDisk(d *disturbance) {
	if !c.ownDisk {
		c.note("disk: no file may grow (RLIMIT_FSIZE), for %v", d.lasts)
		defer c.limit(unix.RLIMIT_FSIZE, 0)()
		time.Sleep(d.lasts)
		return
	}
	path := filepath.Join(c.dir, "filler")
	file, err := os.Create(path)
	if err != nil {
		c.note("disk: %v", err)
		return
	}
	defer os.Remove(path)
	defer file.Close()
	chunk, n := make([]byte, 1<<16), 0
	for begin := time.Now(); time.Since(begin) < d.lasts; {
		written, err := file.Write(chunk)
		if n += written; err != nil { // full; whatever is freed meanwhile is taken as well
			chunk = chunk[:max(len(chunk)/2, 1)]
			time.Sleep(glance)
		}
	}
	c.note("disk: filled with %d bytes for %v", n, d.lasts)
}

// limit sets one of the daemon's limits and returns how to set it back.
func (c *chaos) limit(resource int, to uint64) (back func()) {
	pid := c.p.cmd.Process.Pid
	var was unix.Rlimit
	err := unix.Prlimit(pid, resource, nil, &was)
	if err == nil {
		err = unix.Prlimit(pid, resource, &unix.Rlimit{Cur: min(to, was.Max), Max: was.Max}, nil)
	}
	if err != nil {
		c.note("a limit cannot be set: %v", err)
		return func() {}
	}
	return func() {
		if err := unix.Prlimit(pid, resource, &was, nil); err != nil {
			c.ledger.fault("a limit cannot be set back: %v", err)
		}
	}
}

// fewDescriptors is how many more the daemon may open when they run out.
const fewDescriptors = 5

// exhaustDescriptors leaves the daemon few of them, and opens connections.
func (c *chaos) exhaustDescriptors(d *disturbance) {
	used, err := measure(c.p.cmd.Process.Pid)
	if err != nil {
		c.note("descriptors: %v", err)
		return
	}
	c.note("descriptors: %d and %d more, for %v", used.descriptors, fewDescriptors, d.lasts)
	defer c.noWay()()
	c.scarce.Add(1)
	defer c.scarce.Add(-1)
	defer c.limit(unix.RLIMIT_NOFILE, uint64(used.descriptors+fewDescriptors))()
	defer c.connect(8 * fewDescriptors)()
	time.Sleep(d.lasts)
}

// flood opens more connections than the daemon allows, from one address, and looks
// whether probes are answered all the same.
func (c *chaos) flood(d *disturbance) {
	c.note("connections: %d more than allowed, for %v", connectionLimit/4, d.lasts)
	defer c.noWay()()
	defer c.connect(connectionLimit + connectionLimit/4)()
	c.probe(d, "tcp", c.p.address, map[string][]int{"/healthz": {200}, "/v2/health/ready": {200, 503}})
}

const (
	probePause   = 100 * time.Millisecond
	probePatient = 10 * time.Second // far below limits.read_timeout, far above what a machine stalls
)

// probe asks for pages as Kubernetes does, each time on a connection of its own, for as
// long as a disturbance lasts. Whatever that is, each is answered with one of its statuses.
func (c *chaos) probe(d *disturbance, network, address string, pages map[string][]int) {
	once := http.Client{Timeout: probePatient, Transport: &http.Transport{
		DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, address)
		},
	}}
	answered := 0
	for begin := time.Now(); time.Since(begin) < d.lasts && !c.over.Load(); c.rest(probePause) {
		for path, may := range pages {
			before := c.scarce.Load()
			status, err := statusOf(&once, path)
			switch {
			case slices.Contains(may, status):
				answered++
			case before == 0 && c.scarce.Load() == 0: // else there may be no descriptor for it
				c.ledger.fault("%s: a probe of %s: %d, %v", d.name, path, status, err)
			}
		}
	}
	c.note("%s: %d probes were answered meanwhile", d.name, answered)
}

func statusOf(client *http.Client, path string) (int, error) {
	a, err := client.Get("http://localhost" + path)
	if err != nil {
		return 0, err
	}
	defer a.Body.Close()
	_, err = io.Copy(io.Discard, a.Body)
	return a.StatusCode, err
}

const (
	hoarded      = 1024             // answers of half a megabyte, at most
	hoardMemory  = 64 << 20         // limits.memory_bytes
	hoardOfEach  = 32               // on one connection
	hoardGarbage = 2 * moreBytes    // what else a daemon may have taken meanwhile
	hoardPause   = time.Millisecond // between two
)

// hoard asks for large answers over gRPC and reads none. The daemon takes no more
// memory for them than it was given, which leaves none for others: they are refused
// with that reason, and the device is not there for anybody.
func (c *chaos) hoard(d *disturbance) {
	defer c.take()()
	before, err := measure(c.p.cmd.Process.Pid)
	if err != nil {
		c.ledger.fault("hoard: %v", err)
		return
	}
	ctx, leave := context.WithTimeout(context.Background(), d.lasts)
	defer leave()
	most := before.resident
	var calls sync.WaitGroup
	defer calls.Wait()
	for n := 0; n < hoarded && ctx.Err() == nil; n += hoardOfEach {
		client, err := newGRPCCaller(c.p.grpcAddress(), grpc.WithStaticStreamWindowSize(64<<10), grpc.WithStaticConnWindowSize(64<<10))
		if err != nil {
			c.ledger.fault("hoard: %v", err)
			return
		}
		defer client.close()
		for range hoardOfEach {
			q := sum(d.random, wideRows)
			calls.Go(func() { unread(withToken(ctx), client.conn, "merged", q) })
			c.rest(hoardPause)
		}
		if now, err := measure(c.p.cmd.Process.Pid); err == nil {
			most = max(most, now.resident)
		}
	}
	for ; ctx.Err() == nil && !c.over.Load(); c.rest(probePause) {
		if now, err := measure(c.p.cmd.Process.Pid); err == nil {
			most = max(most, now.resident)
		}
	}
	grown, allowed := most-before.resident, int64(2*hoardMemory+hoardGarbage) // Go's heap may be twice what lives
	if raced {
		allowed *= racedTimes
	}
	c.note("hoard: the daemon took %d MiB more, for %v", grown>>20, d.lasts)
	if grown > allowed {
		c.ledger.fault("answers that nobody reads have the daemon take %d MiB more", grown>>20)
	}
}

// unread sends a query over gRPC until an answer begins, and reads nothing of that for as
// long as there is time.
func unread(ctx context.Context, conn *grpc.ClientConn, service string, q query) {
	for ; ctx.Err() == nil; time.Sleep(glance) {
		s, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, inference.GRPCInferenceService_ModelInfer_FullMethodName)
		if err != nil || s.SendMsg(requestOf(service, q)) != nil || s.CloseSend() != nil {
			continue
		}
		if begun, err := s.Header(); err == nil && begun != nil { // an error has a trailer only
			<-ctx.Done()
		}
	}
}

// connect opens connections on which nothing is asked.
func (c *chaos) connect(n int) (back func()) {
	var all []net.Conn
	for range n {
		conn, err := net.DialTimeout("tcp", c.p.address, time.Second)
		if err != nil {
			break
		}
		all = append(all, conn)
	}
	return func() {
		for _, conn := range all {
			conn.Close()
		}
	}
}

// stepClock sets the clocks of the daemon and of its workers forward or back,
// as an administrator or NTP does.
func (c *chaos) stepClock(d *disturbance) {
	if c.clock == nil {
		c.note("clock: %v", c.noClock)
		return
	}
	steps := []time.Duration{time.Hour, -time.Hour, 48 * time.Hour, -48 * time.Hour, time.Minute, -time.Minute, 2 * time.Second, -2 * time.Second}
	by := steps[d.random.IntN(len(steps))]
	if err := c.clock.step(by); err != nil {
		c.ledger.fault("the clock: %v", err)
		return
	}
	begin := time.Now()
	seen := c.awaitDate(by)
	c.note("clock: stepped by %v for %v, answers are dated %v off", by, d.lasts, seen)
	c.rest(d.lasts - time.Since(begin))
	if err := c.clock.step(0); err != nil {
		c.ledger.fault("the clock: %v", err)
	}
}

// awaitDate waits until answers are dated off by that much, which shows that
// the daemon's clock is; their date is renewed once a second.
func (c *chaos) awaitDate(by time.Duration) (seen time.Duration) {
	const blur = 5 * time.Second
	var err error
	for begin := time.Now(); time.Since(begin) < patience; time.Sleep(glance) {
		if seen, err = c.dateOff(); err == nil && (seen-by).Abs() < blur {
			return seen
		}
	}
	c.ledger.fault("the clock was stepped by %v and answers are dated %v off (%v)", by, seen, err)
	return seen
}

// dateOff returns by how much the daemon's clock is off, as its answers say.
func (c *chaos) dateOff() (time.Duration, error) {
	response, err := client.Get(c.p.url("/v2/health/live"))
	if err != nil {
		return 0, err
	}
	response.Body.Close()
	date, err := time.Parse(time.RFC1123, response.Header.Get("Date"))
	return time.Until(date).Round(time.Second), err
}

// corrupt writes rubbish over parts of the state file, or cuts it.
func (c *chaos) corrupt(d *disturbance) {
	path := filepath.Join(c.dir, "state.db")
	c.note("corrupt: %s", spoil(path, d.random))
	c.rest(50 * time.Millisecond)
	// What a worker that comes back finds stored of its model is read.
	service, pid := c.victim(d.random)
	if pid != 0 {
		c.note("kill: %s, process %d: %v", service, pid, sendSignal(pid, syscall.SIGKILL))
	}
}

// spoil corrupts a file in some way, and says how. While the disk is full it
// tries on: not even rubbish can be written to a place that was never written.
func spoil(path string, random *rand.Rand) (how string) {
	for begin := time.Now(); time.Since(begin) < patience; time.Sleep(glance) {
		var err error
		if how, err = spoilOnce(path, random); !errors.Is(err, syscall.ENOSPC) {
			return fmt.Sprint(how, " ", err)
		}
	}
	return "the disk stays full"
}

func spoilOnce(path string, random *rand.Rand) (how string, err error) {
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return path, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil || info.Size() == 0 {
		return "there is nothing to spoil", err
	}
	if random.IntN(3) == 0 {
		to := random.Int64N(info.Size())
		return fmt.Sprintf("%s cut from %d to %d bytes", filepath.Base(path), info.Size(), to), file.Truncate(to)
	}
	const stretch, times = 512, 24
	rubbish := make([]byte, stretch)
	for range times {
		for i := range rubbish {
			rubbish[i] = byte(random.Uint32())
		}
		if _, err := file.WriteAt(rubbish[:random.IntN(stretch)], random.Int64N(info.Size())); err != nil {
			return path, err
		}
	}
	return fmt.Sprintf("%d stretches of the %d bytes of %s", times, info.Size(), filepath.Base(path)), nil
}

// burstClients is how many requests of an overload wait for their answers at
// most; those that would be more are not sent.
const burstClients = 128

// overload asks the service for bursts ten times more than it can do.
func (c *chaos) overload(d *disturbance) {
	defer c.take()()
	next := bursts(d.random)
	mean := c.burstTook / 10
	begin := time.Now()
	var sent, left int
	var clients sync.WaitGroup
	room := make(chan struct{}, burstClients)
	for at := time.Duration(0); ; {
		if at += time.Duration(next() * float64(mean)); at > d.lasts {
			break
		}
		time.Sleep(time.Until(begin.Add(at)))
		select {
		case room <- struct{}{}:
			sent++
			x := d.random.Float64()
			clients.Go(func() {
				c.once("burst", one(x), checkOne, workerRefusals)
				<-room
			})
		default:
			left++
		}
	}
	c.rest(d.lasts - time.Since(begin))
	clients.Wait()
	c.note("overload: %d requests and %d not sent, one each %v on average, for %v", sent, left, mean, d.lasts)
}

// checkOne tells what is wrong with an answer of a model that answers what it
// was asked.
func checkOne(q query, a answer) error {
	if len(a.Outputs) != 1 || len(a.Outputs[0].Data) != 1 || float32(a.Outputs[0].Data[0]) != float32(q.Inputs[0].Data[0]) || a.ID != q.ID {
		return fmt.Errorf("asked %v, got %v, id %q", q, a.Outputs, a.ID)
	}
	return nil
}
