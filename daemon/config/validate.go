package config

import (
	"fmt"
	"net"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/overlapd/overlapd/cuda/mig"
	"github.com/overlapd/overlapd/daemon/observe/tracing"
	"github.com/overlapd/overlapd/models/zoo"
	"github.com/overlapd/overlapd/overlap"
)

// MaxSocketPath is how many bytes the path of a Unix socket may have, by the
// kernel's sockaddr_un.
const MaxSocketPath = 107

// Bounds of what is more than one number.
const (
	maxHosts     = 64
	maxMeasured  = 32 // batch sizes, or sequence lengths, of a service
	maxSeqLen    = 1 << 20
	maxNameBytes = 256 // tracing.service and tracing.instance
)

var (
	serviceName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,127}$`)
	hostName    = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9.:-]{0,252}[A-Za-z0-9])?$`)
	groupName   = regexp.MustCompile(`^([a-z_][a-z0-9_-]{0,31}|[0-9]{1,9})$`) // or its number
)

// instanceKey is the key of how a GPU is divided.
const instanceKey = "mig.instance"

// reservedName is a path of the protocol where a service's name would stand.
const reservedName = "stats"

// complaint is one thing that is wrong with a configuration. Its key is such as
// service[1].target; the file is "" if there is none, and the line 0 if it is not
// known.
type complaint struct {
	File    string
	Line    int
	Key     string
	Message string
}

func (f complaint) text() string {
	where := f.File
	if f.Line > 0 {
		where += ":" + strconv.Itoa(f.Line)
	}
	parts := []string{where, f.Key, f.Message}
	return strings.Join(slices.DeleteFunc(parts, func(part string) bool { return part == "" }), ": ")
}

// Faults is the error of a configuration: everything that is wrong with it,
// in the order of the file.
type Faults []complaint

func (f Faults) Error() string {
	all := make([]string, len(f))
	for i := range f {
		all[i] = f[i].text()
	}
	return strings.Join(all, "\n")
}

// At adds a complaint about a line of a file, 0 if that is not known.
func (f *Faults) At(file string, line int, format string, args ...any) {
	*f = append(*f, complaint{File: file, Line: line, Message: fmt.Sprintf(format, args...)})
}

// ModelFault returns why the model of a service cannot be served, as a fault: the
// configuration names something that is no good, and trying again would not change it.
func ModelFault(service string, why error) Faults {
	return Faults{{Message: fmt.Sprintf("service %s: its model cannot be served: %v", service, why)}}
}

func (f *Faults) add(key, format string, args ...any) {
	*f = append(*f, complaint{Key: key, Message: fmt.Sprintf(format, args...)})
}

// when adds a complaint if something is wrong, and reports whether it is.
func (f *Faults) when(wrong bool, key, format string, args ...any) bool {
	if wrong {
		f.add(key, format, args...)
	}
	return wrong
}

// Validate checks the configuration and returns Faults with everything that
// is wrong, or nil.
func (c *Config) Validate() error {
	if f := c.faults(); len(f) > 0 {
		return f
	}
	return nil
}

// faults checks each key by its declaration, and then what no declaration can
// say: forms, and relations between keys.
func (c *Config) faults() (f Faults) {
	gpu := c.MayUseGPU()
	c.keys(func(k key) {
		if k.tag.Get("gpu") != "" && !gpu {
			f.when(!k.isDefault(), k.name, `only a GPU has that: set device = "cuda", or leave it out with device = %q`, c.Device)
			return
		}
		fault := k.fault()
		f.when(fault != "", k.name, "%s", fault)
	})
	c.checkAddresses(&f)
	c.checkAdmin(&f)
	c.checkDevice(&f)
	c.checkLimits(&f)
	c.checkTLS(&f)
	c.checkTracing(&f)
	c.checkServices(&f)
	if gpu {
		c.checkMPS(&f)
		c.checkMIG(&f)
	}
	return f
}

func (c *Config) checkAddresses(f *Faults) {
	if err := checkListen(c.Listen); err != nil {
		f.add("listen", "%v", err)
	}
	if c.GRPCListen == "" {
		return
	}
	if err := checkListen(c.GRPCListen); err != nil {
		f.add("grpc_listen", "%v", err)
	} else {
		f.when(c.GRPCListen == c.Listen && !strings.HasSuffix(c.Listen, ":0"),
			"grpc_listen", "%q is the address of listen too: gRPC has a port of its own", c.Listen)
	}
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

func (c *Config) checkAdmin(f *Faults) {
	a := &c.Admin
	if c.AdminChosen() {
		if !f.when(len(a.Socket) > MaxSocketPath || strings.ContainsRune(a.Socket, 0), "admin_socket",
			"a socket path has 1 to %d bytes, and this has %d: choose a shorter one, such as /run/overlapd.sock", MaxSocketPath, len(a.Socket)) {
			f.when(c.Listen == UnixPrefix+a.Socket || c.GRPCListen == UnixPrefix+a.Socket, "admin_socket",
				"%q is where clients are served, too: administration has a socket of its own", a.Socket)
		}
	}
	if a.Group != "" {
		if !f.when(!groupName.MatchString(a.Group), "admin_group", "must be the name or the number of a group, not %q", a.Group) {
			f.when(c.adminOff(), "admin_group", `there is no admin_socket for it: leave it out, or set admin_socket = "auto"`)
		}
	}
}

func (c *Config) checkDevice(f *Faults) {
	f.when(c.StateDir == "", "state_dir", "must not be empty")
	var policies []string
	for _, p := range overlap.Policies() {
		policies = append(policies, p.Name)
	}
	fault := notOneOf(c.Policy, policies)
	f.when(fault != "", "policy", "%s", fault)
	f.when(c.Emulated() && c.DeviceProfile == "", "device_profile", `must name a file made with overlapd device fit, for device = "emulated"`)
	f.when(!c.Emulated() && c.DeviceProfile != "", "device_profile", `only an emulated device has one: set device = "emulated"`)
}

func (c *Config) checkLimits(f *Faults) {
	l, w := &c.Limits, &c.Worker
	f.when(l.MemoryBytes < 2*l.RequestBytes, "limits.memory_bytes",
		"must be at least twice limits.request_bytes (%s), for a body and what it inflates to, not %s", formatBytes(l.RequestBytes), formatBytes(l.MemoryBytes))
	f.when(len(l.Hosts) > maxHosts, "limits.hosts", "%d names, the limit is %d", len(l.Hosts), maxHosts)
	for _, h := range l.Hosts {
		f.when(!hostName.MatchString(h), "limits.hosts", "%q is not the name of a host", h)
	}
	f.when(w.BackoffMax < w.BackoffMin, "worker.backoff_max", "must be at least worker.backoff_min (%v), not %v", w.BackoffMin, w.BackoffMax)
}

func (c *Config) checkTLS(f *Faults) {
	t := &c.TLS
	f.when(t.Cert == "" && t.Key != "", "tls.cert", "is missing: tls.key names a key, and a key goes with a certificate")
	f.when(t.Cert != "" && t.Key == "", "tls.key", "is missing: tls.cert names a certificate, and a certificate goes with its key")
	f.when(t.Cert == "" && t.ClientCA != "", "tls.client_ca", "needs tls.cert and tls.key: clients show certificates only to a daemon that has one")
}

func (c *Config) checkTracing(f *Faults) {
	t := &c.Tracing
	if t.Endpoint != "" {
		if _, err := tracing.CheckEndpoint(t.Endpoint); err != nil {
			f.add("tracing.endpoint", "%v", err)
		}
	}
	f.when((t.CertFile == "") != (t.KeyFile == ""), "tracing.cert_file", "cert_file and key_file belong together: set both or none")
	f.when(t.Service == "" || len(t.Service) > maxNameBytes, "tracing.service", "must have 1 to %d bytes", maxNameBytes)
	f.when(len(t.Instance) > maxNameBytes, "tracing.instance", "must have at most %d bytes", maxNameBytes)
}

func (c *Config) checkServices(f *Faults) {
	f.when(len(c.Services) == 0, "service", "there is no service")
	first := map[string]int{}
	for i := range c.Services {
		s, prefix := &c.Services[i], fmt.Sprintf("service[%d].", i)
		if !f.when(!serviceName.MatchString(s.Name) || strings.Contains(s.Name, ".."), prefix+"name",
			`%q must be 1 to 128 letters, digits, "_", "." or "-", begin with a letter or digit and not contain ".."`, s.Name) {
			f.when(s.Name == reservedName, prefix+"name", "%q is reserved: the protocol has /v2/models/stats", s.Name)
		}
		s.checkModel(f, prefix+"model", c.Emulated())
		f.when(s.Cut < 0 && !c.MayUseGPU(), prefix+"cut",
			"must be at least 0 with device = %q, not %d: only for a GPU is a cut chosen that this could replace", c.Device, s.Cut)
		checkMeasured(f, prefix+"sizes", s.Sizes, max(s.MaxBatch, s.MaxQueryBatch))
		checkMeasured(f, prefix+"seq_lens", s.SeqLens, maxSeqLen)
		j, twice := first[s.Name]
		if !f.when(twice, prefix+"name", "%q is the name of service[%d] too", s.Name, j) {
			first[s.Name] = i
		}
	}
}

func (s *Service) checkModel(f *Faults, key string, emulated bool) {
	name, isZoo := strings.CutPrefix(s.Model, ZooPrefix)
	switch isEmulated := strings.HasPrefix(s.Model, EmulatedPrefix); {
	case emulated && !isEmulated:
		f.add(key, `must be "emulated:NAME" with device = "emulated", which runs no other, not %q`, s.Model)
	case isEmulated && !emulated:
		f.add(key, `%q runs with device = "emulated" only`, s.Model)
	case s.Model == "":
		f.add(key, `must be "zoo:NAME" or the path of an ONNX file`)
	case isZoo && !slices.Contains(zoo.Names(), name):
		f.add(key, "%q is not in the zoo; see overlapd models list", s.Model)
	case strings.ContainsRune(s.Model, 0):
		f.add(key, "a path cannot contain NUL")
	}
}

// checkMeasured checks the batch sizes or sequence lengths that are measured.
func checkMeasured(f *Faults, key string, list []int, most int) {
	f.when(len(list) > maxMeasured, key, "%d numbers, the limit is %d", len(list), maxMeasured)
	for i, n := range list {
		f.when(n < 1 || n > most, key, "must be in [1, %d], not %d", most, n)
		before := list[max(i-1, 0)]
		f.when(i > 0 && n <= before, key, "must rise, but %d comes after %d", n, before)
	}
}

func (c *Config) checkMPS(f *Faults) {
	m := &c.MPS
	f.when(m.Dir != "" && !filepath.IsAbs(m.Dir), "mps.dir", "must be an absolute path, for workers stand elsewhere, not %q", m.Dir)
	if m.Mode != MPSOff {
		return
	}
	f.when(m.Dir != "" || m.Program != "", "mps.mode", `is "off", so nothing may be said of dir and program: leave them out, or set mode = "own"`)
	c.keys(func(k key) {
		f.when(strings.HasPrefix(k.name, "service[") && k.tag.Get("gpu") != "" && !k.isDefault(),
			k.name, `is a limit of MPS, which is off: set mode = "own" in [mps], or leave it out`)
	})
}

func (c *Config) checkMIG(f *Faults) {
	n := len(c.MIG.Instances)
	if n == 0 {
		f.when(c.MIG.Owner, "mig.owner", "owns nothing without a [[mig.instance]]: declare the instances, or set it to false")
		return
	}
	f.when(n > 1 && c.MPS.Mode == MPSExisting, instanceKey, `each instance needs an MPS control daemon of its own: set mode = "own" or "off" in [mps]`)
	f.when(c.Device != DeviceCUDA, instanceKey, `needs device = "cuda", not %q: there is no other device to divide`, c.Device)
	f.when(strings.HasPrefix(strings.ToUpper(c.GPU), "MIG-"), instanceKey, "gpu = %q is an instance already: name the GPU that is to be divided", c.GPU)
	c.checkPlaces(f)
}

// checkPlaces checks that each service has one instance and each instance a
// service.
func (c *Config) checkPlaces(f *Faults) {
	places := map[string]int{}
	for i, instance := range c.MIG.Instances {
		prefix := fmt.Sprintf("%s[%d].", instanceKey, i)
		if err := mig.CheckProfile(instance.Profile); err != nil {
			f.add(prefix+"profile", "%v", err)
		}
		f.when(len(instance.Services) == 0, prefix+"services", "no service runs on it: name one, or leave the instance out")
		for _, name := range instance.Services {
			j, twice := places[name]
			if !f.when(c.Service(name) == nil, prefix+"services", "there is no service %q", name) {
				f.when(twice, prefix+"services", "%q is on mig.instance[%d] already", name, j)
			}
			places[name] = i
		}
	}
	for _, s := range c.Services {
		_, placed := places[s.Name]
		f.when(!placed, instanceKey, "service %q is on none of the instances: add it to the services of one", s.Name)
	}
}
