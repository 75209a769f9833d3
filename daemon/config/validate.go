package config

import (
	"cmp"
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

// MaxSocketPath is the maximum length of the path of a Unix socket in bytes, by the
// kernel's sockaddr_un.
const MaxSocketPath = 107

// Limits on lists, lengths and values that the tags of a key cannot declare.
const (
	maxHosts     = 64
	maxLibraries = 16 // of custom operators of a service
	maxMeasured  = 32 // batch sizes, or sequence lengths, of a service
	maxSeqLen    = 1 << 20
	maxNameBytes = 256 // of tracing.service and tracing.instance
	maxAccuracy  = 1e12
)

var (
	serviceName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,127}$`)
	hostName    = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9.:-]{0,252}[A-Za-z0-9])?$`)
	deviceName  = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,62}$`)
	groupName   = regexp.MustCompile(`^([a-z_][a-z0-9_-]{0,31}|[0-9]{1,9})$`) // a name or a number
)

// reservedName is a path of the protocol in the place of a model name.
const reservedName = "stats"

// complaint is one fault of a configuration. Key is for example service[1].target. File is
// "" if there is none, and Line is 0 if it is not known.
type complaint struct {
	File    string
	Line    int
	Key     string
	Message string
}

// text returns the complaint as a line, beginning with its location.
func (f complaint) text() string {
	where := f.File
	if f.Line > 0 {
		where += ":" + strconv.Itoa(f.Line)
	}
	parts := []string{where, f.Key, f.Message}
	return strings.Join(slices.DeleteFunc(parts, func(part string) bool { return part == "" }), ": ")
}

// Faults is the error of an invalid configuration. It has everything that is wrong, in the
// order of the file.
type Faults []complaint

// Error returns the faults, one a line.
func (f Faults) Error() string {
	all := make([]string, len(f))
	for i := range f {
		all[i] = f[i].text()
	}
	return strings.Join(all, "\n")
}

// At adds a fault in a line of a file, 0 if the line is not known.
func (f *Faults) At(file string, line int, format string, args ...any) {
	*f = append(*f, complaint{File: file, Line: line, Message: fmt.Sprintf(format, args...)})
}

// ModelFault returns a fault that says why the model of a service cannot be served. The
// configuration is wrong, so trying again would not help.
func ModelFault(service string, why error) Faults {
	return Faults{{Message: fmt.Sprintf("service %s: its model is invalid: %v", service, why)}}
}

// add adds a fault of a key.
func (f *Faults) add(key, format string, args ...any) {
	*f = append(*f, complaint{Key: key, Message: fmt.Sprintf(format, args...)})
}

// when adds a fault if wrong is set, and returns wrong.
func (f *Faults) when(wrong bool, key, format string, args ...any) bool {
	if wrong {
		f.add(key, format, args...)
	}
	return wrong
}

// Validate returns Faults with everything that is wrong with the configuration, or nil.
func (c *Config) Validate() error {
	if f := c.faults(); len(f) > 0 {
		return f
	}
	return nil
}

// faults checks each key by its declaration, and then what tags cannot express: formats,
// and relations between keys.
func (c *Config) faults() (f Faults) {
	gpu := c.MayUseGPU()
	c.keys(func(k key) {
		if of := k.tag.Get("gpu"); of != "" && !gpu && !(of == "share" && c.Emulated() && c.Policy == Static) {
			f.when(!k.isDefault(), k.name, `applies only to a GPU: set device = "cuda", or leave it out with device = %q`, c.Pool()[0].Kind)
			return
		}
		fault := k.fault()
		f.when(fault != "", k.name, "%s", fault)
	})
	c.checkAddresses(&f)
	c.checkAdmin(&f)
	c.checkDevice(&f)
	f.when(c.Plan != "" && len(c.Devices) == 0, planKey, "there is no [[device]] to apply it to: leave it out, or declare devices")
	if len(c.Devices) > 0 {
		f.when(c.Device != DeviceAuto, deviceKey, deviceForms)
		f.when(c.GPU != "", "gpu", "each [[device]] has its own: leave it out here")
		c.Devices.check(&f, c.DeviceProfile)
	}
	source := c.Predictor.Source
	f.when(source != "" && c.Predictor.File != "", "predictor.source", "predictor.file already names the only predictor: leave one of them out")
	f.when(strings.Contains(source, "://") && !IsURL(source), "predictor.source", "%q is neither a folder, nor a file, nor a URL with http:// or https://", source)
	c.checkLimits(&f)
	c.checkTLS(&f)
	c.Tracing.check(&f)
	c.checkServices(&f)
	checkShares(c, &f)
	if gpu {
		c.checkMPS(&f)
		c.checkMIG(&f)
	}
	return f
}

// checkAddresses checks the addresses of both endpoints.
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
			"grpc_listen", "%q is also the address of listen: give gRPC its own port", c.Listen)
	}
}

// checkListen checks the format of an address. Whether it can be opened is only known when
// the daemon opens it.
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

// checkAdmin checks the admin socket and its group.
func (c *Config) checkAdmin(f *Faults) {
	a := &c.Admin
	if c.AdminChosen() {
		if !f.when(len(a.Socket) > MaxSocketPath || strings.ContainsRune(a.Socket, 0), "admin_socket",
			"a socket path has 1 to %d bytes, but this one has %d: choose a shorter one, such as /run/overlapd.sock", MaxSocketPath, len(a.Socket)) {
			f.when(c.Listen == UnixPrefix+a.Socket || c.GRPCListen == UnixPrefix+a.Socket, "admin_socket",
				"%q is also an address for clients: give admin_socket its own path", a.Socket)
		}
	}
	if a.Group != "" {
		if !f.when(!groupName.MatchString(a.Group), "admin_group", "must be the name or number of a group, not %q", a.Group) {
			f.when(c.adminOff(), "admin_group", `needs an admin_socket: leave it out, or set admin_socket = "auto"`)
		}
	}
}

// checkDevice checks the policy and the single device.
func (c *Config) checkDevice(f *Faults) {
	f.when(c.StateDir == "", "state_dir", "must not be empty")
	checkPolicy(f, c.Policy)
	f.when(len(c.Devices) == 0 && c.Emulated() && c.DeviceProfile == "", "device_profile", `is missing with device = "emulated": name a file made with overlapd-lab device fit`)
	f.when(!c.Emulated() && c.DeviceProfile != "", "device_profile", `applies only to an emulated device: set device = "emulated", or leave it out`)
}

// checkPolicy accepts the policies that serve, and not those for comparison.
func checkPolicy(f *Faults, policy string) {
	var names []string
	for _, p := range overlap.Policies() {
		names = append(names, p.Name)
	}
	for _, p := range overlap.Comparisons() {
		if p.Name == policy {
			last := len(names) - 1
			f.add("policy", "%q is only for comparison in overlapd-lab simulate: choose %s or %s", policy, strings.Join(names[:last], ", "), names[last])
			return
		}
	}
	fault := notOneOf(policy, names)
	f.when(fault != "", "policy", "%s", fault)
}

// check checks each device by itself and against the ones before it. profile is the default
// for emulated devices.
func (p Pool) check(f *Faults, profile string) {
	for i := range p {
		d, prefix := &p[i], fmt.Sprintf("%s[%d].", deviceKey, i)
		f.when(!deviceName.MatchString(d.Name), prefix+"name", `%q must be 1 to 63 letters, digits, "_" or "-" and begin with a letter or digit`, d.Name)
		d.check(f, prefix, profile)
		for j := range i {
			d.checkBeside(f, prefix, j, &p[j])
		}
	}
}

// check checks that a device has only the keys of its kind, and their formats.
func (d *Device) check(f *Faults, prefix, profile string) {
	for _, of := range []struct{ key, value, kind string }{
		{"cores", d.Cores, DeviceCPU}, {"gpu", d.GPU, DeviceCUDA}, {"mig", d.MIG, DeviceCUDA}, {"profile", d.Profile, DeviceEmulated},
	} {
		f.when(of.value != "" && d.Kind != of.kind, prefix+of.key, "applies only to a device with kind = %q: leave it out with kind = %q", of.kind, d.Kind)
	}
	if _, err := parseCores(d.Cores); err != nil {
		f.add(prefix+"cores", "%v", err)
	}
	f.when(d.Kind == DeviceEmulated && d.Profile == "" && profile == "", prefix+"profile", "is missing: name a file made with overlapd-lab device fit, or set device_profile for all devices")
	if d.MIG == "" {
		return
	}
	if err := mig.CheckProfile(d.MIG); err != nil {
		f.add(prefix+"mig", "%v", err)
	}
	f.when(strings.HasPrefix(strings.ToUpper(d.GPU), "MIG-"), prefix+"mig", "gpu = %q is already an instance: leave out mig, or name the GPU to divide", d.GPU)
}

// checkBeside checks a device against the j-th, which precedes it. Two devices must not
// have the same name or share hardware.
func (d *Device) checkBeside(f *Faults, prefix string, j int, other *Device) {
	f.when(d.Name == other.Name, prefix+"name", "%q is also the name of device[%d]: give each its own", d.Name, j)
	if d.Kind != other.Kind {
		f.when((d.Kind == DeviceEmulated) != (other.Kind == DeviceEmulated), prefix+"kind",
			"is %q, but device %q is %q: all devices of a daemon are emulated, or none; run two daemons", d.Kind, other.Name, other.Kind)
		return
	}
	switch d.Kind {
	case DeviceCPU:
		for _, one := range []*Device{d, other} {
			f.when(one.Cores == "", prefix+"cores", "device %q has no cores, and there is another CPU device: give each its own, such as \"0-3\"", one.Name)
		}
		// Shared cores would make the isolated latencies of both devices wrong.
		mine, theirs := d.CPUs(), other.CPUs()
		both := slices.DeleteFunc(mine, func(core int) bool { return !slices.Contains(theirs, core) })
		f.when(len(both) > 0, prefix+"cores", "device %q also has cores %v: give each device its own", other.Name, both)
	case DeviceCUDA:
		f.when(cmp.Or(d.GPU, "0") == cmp.Or(other.GPU, "0") && (d.MIG == "" || other.MIG == ""), prefix+"gpu",
			"device %q is also on GPU %s: give each device its own GPU, or its own instance of that GPU (mig)", other.Name, cmp.Or(d.GPU, "0"))
	}
}

// CheckCores returns Faults if devices name cores that the process cannot use. It is not
// part of Validate, because it depends on the host.
func (p Pool) CheckCores(usable func(core int) bool) error {
	var f Faults
	for i := range p {
		missing := slices.DeleteFunc(p[i].CPUs(), usable)
		f.when(len(missing) > 0, fmt.Sprintf("%s[%d].cores", deviceKey, i),
			"device %q has cores %v that do not exist or are not available here: name others (nproc and taskset -cp $$ show them)", p[i].Name, missing)
	}
	if len(f) > 0 {
		return f
	}
	return nil
}

// checkOn checks the devices that a service names.
func (p Pool) checkOn(f *Faults, key string, on []string) {
	// An unknown name is compared with these for a suggestion.
	known := p.names()
	for i, name := range on {
		switch {
		case len(known) == 0:
			f.add(key, "there is no [[device]] to name: leave it out, or declare devices")
			return
		case !slices.Contains(known, name):
			f.add(key, "there is no device %q%s; the devices are %s", name, Guess("", name, known), strings.Join(known, ", "))
		case slices.Contains(on[:i], name):
			f.add(key, "names %q twice", name)
		}
	}
}

// checkLimits checks relations between limits.
func (c *Config) checkLimits(f *Faults) {
	l, w := &c.Limits, &c.Worker
	f.when(l.MemoryBytes < 2*l.RequestBytes, "limits.memory_bytes",
		"must be at least twice limits.request_bytes (%s), for a body and its decompressed form, not %s", formatBytes(l.RequestBytes), formatBytes(l.MemoryBytes))
	f.when(len(l.Hosts) > maxHosts, "limits.hosts", "has %d names, and the limit is %d", len(l.Hosts), maxHosts)
	for _, h := range l.Hosts {
		f.when(!hostName.MatchString(h), "limits.hosts", "%q is not a host name", h)
	}
	f.when(w.BackoffMax < w.BackoffMin, "worker.backoff_max", "must be at least worker.backoff_min (%v), not %v", w.BackoffMin, w.BackoffMax)
}

// checkTLS checks that the TLS files are complete.
func (c *Config) checkTLS(f *Faults) {
	t := &c.TLS
	f.when(t.Cert == "" && t.Key != "", "tls.cert", "is missing, but tls.key is set: set both or none")
	f.when(t.Cert != "" && t.Key == "", "tls.key", "is missing, but tls.cert is set: set both or none")
	f.when(t.Cert == "" && t.ClientCA != "", "tls.client_ca", "needs tls.cert and tls.key: clients show certificates only to a daemon that has one")
}

// check checks the collector's address and credentials.
func (t *Tracing) check(f *Faults) {
	if t.Endpoint != "" {
		if _, err := tracing.CheckEndpoint(t.Endpoint); err != nil {
			f.add("tracing.endpoint", "%v", err)
		}
	}
	f.when((t.CertFile == "") != (t.KeyFile == ""), "tracing.cert_file", "cert_file and key_file belong together: set both or none")
	f.when(t.Service == "" || len(t.Service) > maxNameBytes, "tracing.service", "must have 1 to %d bytes", maxNameBytes)
	f.when(len(t.Instance) > maxNameBytes, "tracing.instance", "must have at most %d bytes", maxNameBytes)
}

// nameForm describes a valid name of a service or variant.
const nameForm = `1 to 128 letters, digits, "_", "." or "-", begin with a letter or digit and not contain ".."`

// isName reports whether a name is valid. Names become parts of paths and file names, hence
// no "..".
func isName(name string) bool { return serviceName.MatchString(name) && !strings.Contains(name, "..") }

// checkServices checks all services.
func (c *Config) checkServices(f *Faults) {
	f.when(len(c.Services) == 0, "service", "there is no service: add a [[service]] table")
	all, stay := expanded(c.Services), 0
	for i := range all {
		if c.Stays(&all[i]) {
			stay++
		}
	}
	f.when(stay > MaxServices, "service", "%d services whose models stay in memory, counting each variant, and the limit is %d: leave some out, set load = %q, or run several daemons", stay, MaxServices, LoadOnDemand)
	f.when(!c.loadsAtStart() && c.MayUseGPU(), "load", "%q is for the CPU: set device = %q, or load = %q", c.Models.Load, DeviceCPU, LoadAtStart)
	f.when(!c.loadsAtStart() && c.Policy == Static, "load", "%q does not go with policy = %q, which divides the device among all services at the start: choose another policy", c.Models.Load, Static)
	// Index of the first service with each name and version.
	first := map[string]int{}
	for i := range c.Services {
		s, prefix := &c.Services[i], fmt.Sprintf("service[%d].", i)
		name := s.Base()
		if !f.when(!isName(name), prefix+"name", `%q must be `+nameForm, s.Name) {
			f.when(name == reservedName, prefix+"name", "%q is reserved, because the protocol has /v2/models/stats: choose another name", name)
		}
		s.checkModels(f, prefix, c.Emulated())
		f.when(s.Cut < 0 && !c.MayUseGPU(), prefix+"cut",
			"must be at least 0 with device = %q, not %d: only on a GPU is the cut chosen by measurement", c.Device, s.Cut)
		c.Devices.checkOn(f, prefix+"on", s.On)
		s.checkLibraries(f, prefix+"op_libraries", c.Emulated())
		checkMeasured(f, prefix+"sizes", s.Sizes, max(s.MaxBatch, s.MaxQueryBatch))
		checkMeasured(f, prefix+"seq_lens", s.SeqLens, maxSeqLen)
		j, twice := first[name+s.suffix()]
		if !f.when(twice, prefix+"name", "%q is also the name of service[%d]: choose another name, or another version", name, j) {
			first[name+s.suffix()] = i
		}
	}
}

// checkModels checks the model of a service, or its variants.
func (s *Service) checkModels(f *Faults, prefix string, emulated bool) {
	if len(s.Variants) == 0 {
		checkModel(f, prefix+"model", s.Model, emulated)
		f.when(s.Selection != "", prefix+"selection", "chooses among variants, but there is no [[service.variant]]: leave it out, or give the service variants")
		return
	}
	f.when(s.Model != "", prefix+"model", "the service has variants, each with its own model: leave out model, or every [[service.variant]]")
	f.when(len(s.Variants) == 1, prefix+"variant", "is the only one, so there is no choice: add a second variant, or replace it with model = %q", s.Variants[0].Model)
	f.when(s.BestEffort, prefix+"best_effort", "variants are chosen by the time until the deadline, and these queries have none: leave it out, or give the service one model")
	for j := range s.Variants {
		v, at := &s.Variants[j], fmt.Sprintf("%svariant[%d].", prefix, j)
		checkModel(f, at+"model", v.Model, emulated)
		f.when(v.Model != "" && !isName(v.called()), at+"name", `%q must be `+nameForm, v.called())
		f.when(!(v.Accuracy > 0 && v.Accuracy <= maxAccuracy), at+"accuracy",
			"must be above 0 and at most %v, such as the percentage of correct answers, not %v", maxAccuracy, v.Accuracy)
		for k := range j {
			other := &s.Variants[k]
			f.when(v.Model != "" && other.called() == v.called(), at+"name", "%q is also the name of variant[%d]: choose another name", v.called(), k)
			f.when(v.Accuracy > 0 && other.Accuracy == v.Accuracy, at+"accuracy",
				"is %v, the same as that of variant[%d] (%s): only the faster of the two would ever run; leave the other out, or correct one", v.Accuracy, k, other.called())
		}
	}
}

// checkLibraries checks the names of libraries of custom operators. What the files are is
// checked together with the model.
func (s *Service) checkLibraries(f *Faults, key string, emulated bool) {
	f.when(emulated && len(s.OpLibraries) > 0, key, `has no effect with device = "emulated", which computes nothing: leave it out`)
	f.when(len(s.OpLibraries) > maxLibraries, key, "has %d paths, and the limit is %d", len(s.OpLibraries), maxLibraries)
	for i, path := range s.OpLibraries {
		f.when(path == "", key, "an empty path names no file: leave it out")
		f.when(strings.ContainsRune(path, 0), key, "a path cannot contain NUL")
		f.when(slices.Contains(s.OpLibraries[:i], path), key, "%q is there twice: leave one out", path)
	}
}

// checkModel checks the format of a model. Whether the file exists and can be served is
// checked when it is loaded.
func checkModel(f *Faults, key, model string, emulated bool) {
	name, isZoo := strings.CutPrefix(model, ZooPrefix)
	switch isEmulated := strings.HasPrefix(model, EmulatedPrefix); {
	case emulated && !isEmulated:
		f.add(key, `must be "emulated:NAME" with device = "emulated", not %q`, model)
	case isEmulated && !emulated:
		f.add(key, `%q needs device = "emulated"`, model)
	case model == "":
		f.add(key, `must be "zoo:NAME" or the path of an ONNX file`)
	case isZoo && !slices.Contains(zoo.Names(), name):
		f.add(key, "%q is not in the zoo; see overlapd models list", model)
	case strings.ContainsRune(model, 0):
		f.add(key, "a path cannot contain NUL")
	}
}

// takesPipelines are the policies that can move batches between devices.
var takesPipelines = []string{"overlap", "edf"}

// pipelineFaults checks the services for which a plan has pipelines. Load calls it after
// applying the plan.
func pipelineFaults(policy string, services []Service) (f Faults) {
	for i := range services {
		s, prefix := &services[i], fmt.Sprintf("service[%d].", i)
		if s.Planned == nil {
			continue
		}
		if i == 0 || services[i-1].Planned == nil { // once
			f.when(!slices.Contains(takesPipelines, policy), "policy", "%q runs each batch on one device, but the plan has pipelines: set one of %s, or leave out the plan",
				policy, strings.Join(takesPipelines, ", "))
		}
		f.when(len(s.Variants) > 0, prefix+"variant", "the plan has pipelines for the service, but each variant is another model: give the service one model, or leave out the plan")
		f.when(s.BestEffort, prefix+"best_effort", "the plan has pipelines for the service, which reserve devices by deadlines, and best effort has none: leave it out, or leave out the plan")
		missing := slices.DeleteFunc(slices.Clone(s.Planned.Devices), func(name string) bool { return slices.Contains(s.On, name) })
		f.when(len(missing) > 0, prefix+"on", "the pipelines of the plan also need %s: leave on out, so that the service is on all devices that they need", strings.Join(missing, ", "))
		for _, p := range s.Planned.Pipelines {
			if f.when(p.Batch > s.MaxBatch, prefix+"max_batch", "the plan has batches of %d, but this allows %d: raise it, or make a plan with smaller batches", p.Batch, s.MaxBatch) {
				break
			}
		}
	}
	return f
}

// checkMeasured checks batch sizes or sequence lengths to measure: they must be ascending
// and at most most.
func checkMeasured(f *Faults, key string, list []int, most int) {
	f.when(len(list) > maxMeasured, key, "has %d numbers, and the limit is %d", len(list), maxMeasured)
	for i, n := range list {
		f.when(n < 1 || n > most, key, "must be in [1, %d], not %d", most, n)
		before := list[max(i-1, 0)]
		f.when(i > 0 && n <= before, key, "must be ascending, but %d comes after %d", n, before)
	}
}

// checkShares checks what the policy static requires: devices that can be divided, and
// shares that fit on each.
func checkShares(c *Config, f *Faults) {
	if c.Policy != Static {
		return
	}
	f.when(c.Plan != "", planKey, "assigns services that share whole devices, but with policy = %q each service has its own share: leave it out, and name devices in on", Static)
	f.when(c.MPS.Mode == MPSOff, "mps.mode", "is %q, but policy = %q needs MPS to separate the shares: set mode = \"own\", or choose another policy", MPSOff, Static)
	shares := 0
	for i, d := range c.Pool() {
		f.when(d.Kind != DeviceCUDA && d.Kind != DeviceEmulated, "policy", "%q needs a GPU, where MPS gives each service a share, but device %d is %q: set device = %q, or choose edf", Static, i, d.Kind, DeviceCUDA)
		// The MPS percentages of a device's services add up.
		sum := 0
		for j := range c.Services {
			if s := &c.Services[j]; slices.Contains(c.Pool().on(s), i) {
				sum, shares = sum+s.MPS.Percentage, shares+1
			}
		}
		f.when(sum > 100, "policy", "the shares on %s add up to %d %%: lower active_thread_percentage of its services to a total of 100 %%", strings.TrimSpace("device "+d.Name), sum)
	}
	f.when(shares > maxShares, "policy", "%d shares of devices, and the limit is %d: put services on fewer devices with on", shares, maxShares)
	for i := range c.Services {
		s, prefix := &c.Services[i], fmt.Sprintf("service[%d].", i)
		f.when(s.MPS.Percentage == 0, prefix+"active_thread_percentage", "is missing, and with policy = %q each service needs a share: set 1 to 100 (overlapd advise --load --targets recommends shares)", Static)
		f.when(len(s.Variants) > 0, prefix+"variant", "each variant would need its own share: give the service one model, or choose another policy than %q", Static)
	}
}

// checkMPS checks the keys of MPS.
func (c *Config) checkMPS(f *Faults) {
	m := &c.MPS
	f.when(m.Dir != "" && !filepath.IsAbs(m.Dir), "mps.dir", "must be an absolute path, because workers run in another folder, not %q", m.Dir)
	if m.Mode != MPSOff {
		return
	}
	f.when(m.Dir != "" || m.Program != "", "mps.mode", `is "off", so dir and program have no effect: leave them out, or set mode = "own"`)
	c.keys(func(k key) {
		f.when(strings.HasPrefix(k.name, "service[") && k.tag.Get("gpu") != "" && !k.isDefault(),
			k.name, `is a limit of MPS, which is off: set mode = "own" in [mps], or leave it out`)
	})
}

// checkMIG checks the keys of MIG.
func (c *Config) checkMIG(f *Faults) {
	gpus, instances := 0, 0
	for _, d := range c.Devices {
		if d.Kind == DeviceCUDA {
			gpus++
		}
		if d.MIG != "" {
			instances++
		}
	}
	f.when(c.MIG.Owner && instances == 0, "mig.owner", "has no effect without a [[device]] with mig: declare the instances, or set it to false")
	f.when(c.MIG.Owner && len(c.Pool().GPUs()) > 1, "mig.owner", "is for one GPU, but there are %d: create the instances yourself, or run a daemon for each GPU", len(c.Pool().GPUs()))
	f.when(gpus > 1 && c.MPS.Mode == MPSExisting, "mps.mode", `each device needs its own MPS control daemon: set mode = "own" or "off" in [mps]`)
}
