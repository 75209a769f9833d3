package config

import (
	"fmt"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/overlapd/overlapd/models/zoo"
	"github.com/overlapd/overlapd/overlap"
)

// What a configuration may ask for at most. The bounds keep sums and products
// of what they bound far from overflow; none is a recommendation.
const (
	maxConnections = 1 << 17
	maxQueueLimit  = 1 << 20
	maxBatch       = 1 << 12
	maxThreads     = 1 << 10
	maxCut         = 1 << 20
	maxRestarts    = 1 << 20
	maxHosts       = 64
	maxBytes       = 1 << 44
	minHeaderBytes = 1 << 10
	maxHeaderBytes = 1 << 20
	maxDuration    = 24 * time.Hour
	maxPoll        = 10 * time.Millisecond
	maxWays        = 64
	maxGroups      = 1 << 20
	maxRepeats     = 1 << 10
	maxSpans       = 16
	maxSeed        = 1 << 30
	maxMeasured    = 32 // batch sizes, or sequence lengths, of a service
	maxSeqLen      = 1 << 20
	maxLogFiles    = 1 << 10
	minLogBytes    = 1 << 16
	minArenaBytes  = 64
)

var (
	serviceName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,127}$`)
	hostName    = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9.:-]{0,252}[A-Za-z0-9])?$`)

	logLevels  = []string{"trace", "debug", "info", "warn", "error"}
	logFormats = []string{"console", "json"}
)

// reservedName is a path of the protocol where a service's name would stand.
const reservedName = "stats"

// Validate checks the configuration and returns Faults with everything that
// is wrong, or nil.
func (c *Config) Validate() error {
	if f := c.faults(); len(f) > 0 {
		return f
	}
	return nil
}

// checker collects faults.
type checker struct {
	prefix string
	found  Faults
}

func (k *checker) fault(key, format string, args ...any) {
	k.found = append(k.found, Fault{Key: k.prefix + key, Message: fmt.Sprintf(format, args...)})
}

func (k *checker) number(key string, v, least, most int) {
	if v < least || v > most {
		k.fault(key, "must be in [%d, %d], not %d", least, most, v)
	}
}

func (k *checker) bytes(key string, v, least, most int64) {
	if v < least || v > most {
		k.fault(key, "must be in [%s, %s], not %s", formatBytes(least), formatBytes(most), formatBytes(v))
	}
}

func (k *checker) duration(key string, v time.Duration) {
	if v <= 0 || v > maxDuration {
		k.fault(key, "must be more than 0 and at most %v, not %v", maxDuration, v)
	}
}

func (k *checker) choice(key, v string, of []string) {
	if !slices.Contains(of, v) {
		k.fault(key, "must be one of %s, not %q", strings.Join(of, ", "), v)
	}
}

func (c *Config) faults() Faults {
	k := &checker{}
	c.checkDaemon(k)
	k.prefix = "limits."
	c.Limits.check(k)
	k.prefix = "tls."
	c.TLS.check(k)
	k.prefix = "worker."
	c.Worker.check(k)
	k.prefix = "profile."
	c.Profile.check(k)
	k.prefix = "decisions."
	k.bytes("file_bytes", c.Decisions.FileBytes, minLogBytes, maxBytes)
	k.number("files", c.Decisions.Files, 1, maxLogFiles)
	k.prefix = "tracing."
	c.Tracing.check(k)
	k.prefix = ""
	if len(c.Services) == 0 {
		k.fault("service", "there is no service")
	}
	if len(c.Services) > MaxServices {
		k.fault("service", "%d services, the limit is %d", len(c.Services), MaxServices)
	}
	first := map[string]int{}
	for i := range c.Services {
		k.prefix = fmt.Sprintf("service[%d].", i)
		c.Services[i].check(k, c)
		if j, twice := first[c.Services[i].Name]; twice {
			k.fault("name", "%q is the name of service[%d] too", c.Services[i].Name, j)
		} else {
			first[c.Services[i].Name] = i
		}
	}
	k.prefix = ""
	c.checkGPU(k)
	return k.found
}

func (c *Config) checkDaemon(k *checker) {
	if err := checkListen(c.Listen); err != nil {
		k.fault("listen", "%v", err)
	}
	c.checkGRPC(k)
	c.checkAdmin(k)
	if c.StateDir == "" {
		k.fault("state_dir", "must not be empty")
	}
	c.checkDevice(k)
	k.choice("policy", c.Policy, policyNames())
	k.number("ways", c.Ways, 1, maxWays)
	k.choice("log_level", c.LogLevel, logLevels)
	k.choice("log_format", c.LogFormat, logFormats)
	k.duration("drain_timeout", c.DrainTimeout)
}

func (c *Config) checkGRPC(k *checker) {
	if c.GRPCListen == "" {
		return
	}
	if err := checkListen(c.GRPCListen); err != nil {
		k.fault("grpc_listen", "%v", err)
	} else if c.GRPCListen == c.Listen && !strings.HasSuffix(c.Listen, ":0") {
		k.fault("grpc_listen", "%q is the address of listen too: gRPC has a port of its own", c.Listen)
	}
}

func (c *Config) checkDevice(k *checker) {
	switch c.Device {
	case DeviceAuto, DeviceCPU, DeviceCUDA, DeviceEmulated:
	default:
		k.fault("device", `must be "auto", "cpu", "cuda" or "emulated", not %q`, c.Device)
	}
	switch {
	case c.Emulated() && c.DeviceProfile == "":
		k.fault("device_profile", `must name a file made with overlapd device fit, for device = "emulated"`)
	case !c.Emulated() && c.DeviceProfile != "":
		k.fault("device_profile", `only an emulated device has one: set device = "emulated"`)
	}
	k.number("device_seed", c.DeviceSeed, 0, maxSeed)
}

// checkListen checks the form of an address; whether it can be opened is
// found when it is.
func checkListen(address string) error {
	if path, ok := strings.CutPrefix(address, UnixPrefix); ok {
		if path == "" || len(path) > MaxSocketPath || strings.ContainsRune(path, 0) {
			return fmt.Errorf("a socket path has 1 to %d bytes", MaxSocketPath)
		}
		return nil
	}
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf(`must be "host:port" or "unix:/path", not %q`, address)
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return fmt.Errorf("the port must be in [0, 65535], not %q", port)
	}
	return nil
}

func (l *Limits) check(k *checker) {
	k.bytes("request_bytes", l.RequestBytes, 1, maxBytes)
	k.bytes("memory_bytes", l.MemoryBytes, 1, maxBytes)
	k.bytes("header_bytes", l.HeaderBytes, minHeaderBytes, maxHeaderBytes)
	k.bytes("compress_bytes", l.CompressBytes, 0, maxBytes)
	k.number("connections", l.Connections, 1, maxConnections)
	k.duration("read_timeout", l.ReadTimeout)
	k.duration("write_timeout", l.WriteTimeout)
	k.duration("idle_timeout", l.IdleTimeout)
	if l.MemoryBytes < 2*l.RequestBytes {
		k.fault("memory_bytes", "must be at least twice limits.request_bytes (%s), for a body and what it inflates to, not %s",
			formatBytes(l.RequestBytes), formatBytes(l.MemoryBytes))
	}
	if len(l.Hosts) > maxHosts {
		k.fault("hosts", "%d names, the limit is %d", len(l.Hosts), maxHosts)
	}
	for _, h := range l.Hosts {
		if !hostName.MatchString(h) {
			k.fault("hosts", "%q is not the name of a host", h)
		}
	}
}

func (w *Worker) check(k *checker) {
	k.number("threads", w.Threads, 0, maxThreads)
	if w.Poll < 0 || w.Poll > maxPoll {
		k.fault("poll", "must be at least 0 and at most %v, not %v", maxPoll, w.Poll)
	}
	k.number("restart_limit", w.RestartLimit, 1, maxRestarts)
	k.duration("span_timeout", w.SpanTimeout)
	k.duration("load_timeout", w.LoadTimeout)
	k.duration("backoff_min", w.BackoffMin)
	k.duration("backoff_max", w.BackoffMax)
	if w.BackoffMax < w.BackoffMin {
		k.fault("backoff_max", "must be at least worker.backoff_min (%v), not %v", w.BackoffMin, w.BackoffMax)
	}
	k.bytes("input_bytes", w.InputBytes, minArenaBytes, maxBytes)
	k.bytes("output_bytes", w.OutputBytes, minArenaBytes, maxBytes)
	k.bytes("intermediate_bytes", w.IntermediateBytes, minArenaBytes, maxBytes)
}

func (p *Profile) check(k *checker) {
	k.duration("time", p.Time)
	k.number("groups", p.Groups, 1, maxGroups)
	k.number("repeats", p.Repeats, 1, maxRepeats)
	k.number("spans", p.Spans, 1, maxSpans)
	k.number("seed", p.Seed, 0, maxSeed)
}

// measured checks the batch sizes or sequence lengths that are measured.
func (k *checker) measured(key string, list []int, most int) {
	if len(list) > maxMeasured {
		k.fault(key, "%d numbers, the limit is %d", len(list), maxMeasured)
	}
	for i, n := range list {
		k.number(key, n, 1, most)
		if i > 0 && n <= list[i-1] {
			k.fault(key, "must rise, but %d comes after %d", n, list[i-1])
		}
	}
}

func (s *Service) check(k *checker, c *Config) {
	emulated, leastCut := c.Emulated(), 0
	if c.MayUseGPU() {
		leastCut = -1
	}
	switch {
	case !serviceName.MatchString(s.Name) || strings.Contains(s.Name, ".."):
		k.fault("name", `%q must be 1 to 128 letters, digits, "_", "." or "-", begin with a letter or digit and not contain ".."`, s.Name)
	case s.Name == reservedName:
		k.fault("name", "%q is reserved: the protocol has /v2/models/stats", s.Name)
	}
	name, isZoo := strings.CutPrefix(s.Model, ZooPrefix)
	switch isEmulated := strings.HasPrefix(s.Model, EmulatedPrefix); {
	case emulated && !isEmulated:
		k.fault("model", `must be "emulated:NAME" with device = "emulated", which runs no other, not %q`, s.Model)
	case isEmulated && !emulated:
		k.fault("model", `%q runs with device = "emulated" only`, s.Model)
	case s.Model == "":
		k.fault("model", `must be "zoo:NAME" or the path of an ONNX file`)
	case isZoo && !slices.Contains(zoo.Names(), name):
		k.fault("model", "%q is not in the zoo; see overlapd models list", s.Model)
	case strings.ContainsRune(s.Model, 0):
		k.fault("model", "a path cannot contain NUL")
	}
	k.duration("target", s.Target)
	k.number("queue_limit", s.QueueLimit, 1, maxQueueLimit)
	k.number("max_batch", s.MaxBatch, 1, maxBatch)
	k.number("max_query_batch", s.MaxQueryBatch, 1, maxBatch)
	k.number("threads", s.Threads, 0, maxThreads)
	k.number("cut", s.Cut, leastCut, maxCut)
	k.measured("sizes", s.Sizes, max(s.MaxBatch, s.MaxQueryBatch))
	k.measured("seq_lens", s.SeqLens, maxSeqLen)
}

// policyNames returns the policies that the scheduler has.
func policyNames() []string {
	var names []string
	for _, p := range overlap.Policies() {
		names = append(names, p.Name)
	}
	return names
}
