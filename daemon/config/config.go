package config

import (
	"cmp"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/overlapd/overlapd/planning"
)

// Limits on the configuration itself: the size of the file, and the number of services, of
// which each variant counts. As many as MaxServices can be in memory at a time.
const (
	maxBytes    = 1 << 20
	MaxServices = 64
	maxModels   = 1024
)

// Values of load: when the models of services are loaded.
const (
	LoadAtStart   = "start"
	LoadOnDemand  = "demand"
	LoadByRequest = "request"
)

// Kinds of devices. DeviceEmulated is also reported wherever the platform of a model is.
const (
	DeviceAuto     = "auto"
	DeviceCPU      = "cpu"
	DeviceCUDA     = "cuda"
	DeviceEmulated = "emulated"
)

const (
	// ZooPrefix begins the name of a model that overlapd builds itself.
	ZooPrefix = "zoo:"

	// EmulatedPrefix begins the name of a model of an emulated device.
	EmulatedPrefix = "emulated:"

	// UnixPrefix begins an address that is the path of a Unix socket.
	UnixPrefix = "unix:"

	// ReadyAll is the value of ready with which /v2/health/ready requires every service.
	ReadyAll = "all"

	// Values of mps.mode: a control daemon that overlapd starts for each part of a GPU, the
	// running one of mps.dir, or none.
	MPSOwn      = "own"
	MPSExisting = "existing"
	MPSOff      = "off"
)

// Config is the configuration of a daemon. Each field with a toml tag is a key of the
// file. Its tags, which [key] explains, have the default and the bounds. The comment above
// it is the one sentence that users read in docs/configuration.md and in overlapd check
// --explain; go generate writes it into the page.
type Config struct {
	// The HTTP endpoint listens here: host:port, or unix:/path.
	Listen string `toml:"listen" default:"127.0.0.1:8000"`
	// The gRPC endpoint listens here; an empty string turns gRPC off.
	GRPCListen string `toml:"grpc_listen" default:"127.0.0.1:8001"`
	// With any, the daemon is ready once loading has ended and a service can answer; with all,
	// while every service can.
	Ready string `toml:"ready" default:"any" oneof:"any,all"`
	// This folder has the state file, the decision log and cached models; each daemon needs its
	// own.
	StateDir string `toml:"state_dir" missing:"$STATE_DIRECTORY, else ~/.local/state/overlapd"`
	// Services run on the CPU, on a GPU (cuda) or on an emulated device; auto takes a
	// usable GPU if load is start.
	Device string `toml:"device" default:"auto" oneof:"auto,cpu,cuda,emulated"`
	// This GPU is used: its index, UUID or the beginning of one, PCI address, or a MIG UUID;
	// without it, the first.
	GPU string `toml:"gpu" gpu:"only"`
	// Emulated devices take their times from this file of overlapd-lab device fit.
	DeviceProfile string `toml:"device_profile" path:"file"`
	// This file of overlapd plan placement or plan pipeline assigns services to devices, or
	// batches to pipelines.
	Plan string `toml:"plan" path:"file" reload:"now"`

	// Models is when models are loaded, and what they may take.
	Models struct {
		// Models are loaded at the start, on demand (when a query comes, while others give
		// their memory for it), or by request over the protocol.
		Load string `toml:"load" default:"start" oneof:"start,demand,request"`
		// With another load than start, models take this much memory together; 0 is four
		// fifths of what the machine or the control group has.
		Memory int64 `toml:"memory" default:"0B" min:"64MiB" zero:"auto"`
	}

	// This policy schedules queries: overlap, abacus, edf, fcfs, sjf or static.
	Policy string `toml:"policy" default:"overlap"`
	// A stopping daemon works on accepted queries for at most this long.
	DrainTimeout time.Duration `toml:"drain_timeout" default:"30s" reload:"now"`
	// Messages below this level are not logged.
	LogLevel string `toml:"log_level" default:"info" oneof:"trace,debug,info,warn,error" reload:"now"`
	// The log is text for people (console), or one JSON object a line (json).
	LogFormat string `toml:"log_format" default:"console" oneof:"console,json"`
	// The HTTP endpoint serves Prometheus metrics at /metrics.
	Metrics bool `toml:"metrics" default:"true"`

	// Admin is where the daemon is changed while it runs, and by whom.
	Admin struct {
		// Reloads and other administration use this Unix socket; auto chooses a path, off opens
		// none.
		Socket string `toml:"admin_socket" default:"auto"`
		// Members of this group, by name or number, may use the admin socket besides root and
		// the daemon's user.
		Group string `toml:"admin_group"`
	}

	Limits Limits `toml:"limits"`

	// TLS is how both endpoints are encrypted.
	TLS struct {
		// This PEM file has the daemon's certificate, then those of its authorities; without it
		// nothing is encrypted.
		Cert string `toml:"cert" path:"file"`
		// This PEM file has the private key of cert.
		Key string `toml:"key" path:"file"`
		// Clients must show a certificate of one of the authorities in this PEM file, health
		// checks too.
		ClientCA string `toml:"client_ca" path:"file"`
		// Clients with an older version of TLS are refused.
		MinVersion string `toml:"min_version" default:"1.3" oneof:"1.2,1.3"`
	} `toml:"tls"`

	// Access is who may send requests.
	Access struct {
		// Every request but health checks must carry one of the tokens in this file; without
		// it, none is needed.
		TokenFile string `toml:"token_file" path:"file"`
		// With a token_file, /metrics needs a token too.
		Metrics bool `toml:"metrics" default:"true"`
	} `toml:"access"`

	Worker Worker `toml:"worker"`

	// Profile is how operator groups are measured.
	Profile struct {
		// With an overlapping policy and no predictor for these models, the daemon measures
		// operator groups while it is idle.
		OnStart bool `toml:"on_start" default:"true"`
		// Measuring may take this long, and more only until there are the 80 groups that a
		// predictor needs.
		Time time.Duration `toml:"time" default:"2m"`
		// Measuring ends after this many groups.
		Groups int `toml:"groups" default:"600" min:"1" max:"1048576"`
		// Each group runs at most this many times.
		Repeats int `toml:"repeats" default:"8" min:"1" max:"1024"`
		// A measured group has spans of at most this many services.
		Spans int `toml:"spans" default:"4" min:"1" max:"16"`
	} `toml:"profile"`

	// Predictor is where the predictor of groups comes from.
	Predictor struct {
		// The predictor is read from this file of overlapd train, not from the state file.
		File string `toml:"file" path:"file"`
		// A starting daemon imports a predictor from here: an exported file, a folder of them,
		// or an http:// or https:// URL.
		Source string `toml:"source" path:"file"`
		// When measuring is done, a process of low priority fits a predictor.
		Train bool `toml:"train" default:"true"`
	} `toml:"predictor"`

	// Decisions bounds the decision log.
	Decisions struct {
		// Decisions are written to decisions.log in the state folder.
		Log bool `toml:"log"`
		// The next file of the log begins after this size.
		FileBytes int64 `toml:"file_bytes" default:"64MiB" min:"64KiB"`
		// This many files of the log are kept.
		Files int `toml:"files" default:"4" min:"1" max:"1024"`
	} `toml:"decisions"`

	Tracing Tracing `toml:"tracing"`

	// CUDA is what every worker on a GPU gets.
	CUDA struct {
		// Products of float32 round their factors to 10 bits, as in TensorRT and Triton; false
		// keeps all 23 and is slower.
		TF32 bool `toml:"tf32" default:"true" gpu:"only"`
		// Segments are launched as CUDA graphs where that is possible.
		Graphs bool `toml:"graphs" gpu:"only"`
		// One worker may take this much GPU memory; 0 is no limit.
		MemoryLimit int64 `toml:"memory_limit" default:"0B" min:"1MiB" zero:"all" gpu:"only"`
	} `toml:"cuda"`

	// MPS is how workers share a GPU.
	MPS struct {
		// The daemon runs its own MPS control daemons, joins an existing one, or uses no MPS.
		Mode string `toml:"mode" default:"own" oneof:"own,existing,off" gpu:"only"`
		// This folder has the daemon's own MPS control daemons, or is the pipe directory of an
		// existing one.
		Dir string `toml:"dir" gpu:"only"`
		// The daemon starts this nvidia-cuda-mps-control; without it, the one in PATH.
		Program string `toml:"program" gpu:"only"`
	} `toml:"mps"`

	// MIG is whether the daemon owns the instances of a GPU that are its devices.
	MIG struct {
		// As root, the daemon creates missing MIG instances of one GPU and destroys them when
		// it stops.
		Owner bool `toml:"owner" gpu:"only"`
	} `toml:"mig"`

	// Devices are the pool, as it is configured: none where Device says what there is.
	// Everybody but those who read and write configurations asks for the Pool.
	Devices  Pool      `toml:"device" max:"64"`
	Services []Service `toml:"service" max:"1024"`
}

// Tracing is which queries are traced, and where their trace spans go.
type Tracing struct {
	// Trace spans go to the collector at this URL; without it the environment names one, or
	// tracing is off.
	Endpoint string `toml:"endpoint"`
	// This share of the queries is traced, among those whose clients do not decide.
	Sample float64 `toml:"sample" default:"1" min:"0" max:"1"`
	// Each line of this file, name: value, is a header that is sent to the collector, such as a
	// key.
	HeadersFile string `toml:"headers_file" path:"file"`
	// One of the certificates in this PEM file must sign the collector's; without it, one of
	// the system's.
	CAFile string `toml:"ca_file" path:"file"`
	// The daemon shows the certificate in this PEM file to the collector.
	CertFile string `toml:"cert_file" path:"file"`
	// This PEM file has the private key of cert_file.
	KeyFile string `toml:"key_file" path:"file"`
	// Trace spans carry this service.name.
	Service string `toml:"service" default:"overlapd"`
	// Trace spans carry this service.instance.id; without it the GPU's UUID, or the host and
	// the endpoint's address.
	Instance string `toml:"instance"`
}

// Limits bounds what clients can take of the endpoints.
type Limits struct {
	// One request body may have this size, before and after decompression.
	RequestBytes int64 `toml:"request_bytes" default:"64MiB" min:"1B"`
	// Requests that are being read, and answers over 16 KiB until clients have taken them,
	// share this memory.
	MemoryBytes int64 `toml:"memory_bytes" default:"512MiB" min:"1B"`
	// The header of one request may have this size.
	HeaderBytes int64 `toml:"header_bytes" default:"16KiB" min:"1KiB" max:"1MiB"`
	// This many connections may be open, HTTP and gRPC together, at most half of them from one
	// address but loopback.
	Connections int `toml:"connections" default:"1024" min:"1" max:"131072"`
	// A request must arrive within this time, from its first byte to its last.
	ReadTimeout time.Duration `toml:"read_timeout" default:"30s"`
	// A client must take an answer within this time.
	WriteTimeout time.Duration `toml:"write_timeout" default:"30s"`
	// A connection is closed when it has had no request for this long.
	IdleTimeout time.Duration `toml:"idle_timeout" default:"2m"`
	// On loopback, the headers Host and Origin may also carry these names.
	Hosts []string `toml:"hosts"`
}

// Worker is what every worker gets.
type Worker struct {
	// A worker has this many intra-op threads; 0 is one per core.
	Threads int `toml:"threads" default:"0" min:"0" max:"1024"`
	// Waiting threads spin, which is faster for a lone worker and slows down its neighbours.
	Spin bool `toml:"spin"`
	// A worker is killed if one span takes longer than this.
	SpanTimeout time.Duration `toml:"span_timeout" default:"10s"`
	// All attempts to load a model together may take this long; then its service is given up.
	LoadTimeout time.Duration `toml:"load_timeout" default:"2m"`
	// A service is given up, for 15 s at first, if it loses workers this often within a minute.
	RestartLimit int `toml:"restart_limit" default:"30" min:"1" max:"1048576"`
	// The first restart of a worker waits this long, and each further one twice as long as the
	// last.
	BackoffMin time.Duration `toml:"backoff_min" default:"50ms"`
	// No restart of a worker waits longer than this.
	BackoffMax time.Duration `toml:"backoff_max" default:"1s"`
	// The inputs of all queries of one service share this memory, which is taken when used.
	InputBytes int64 `toml:"input_bytes" default:"256MiB" min:"64B"`
	// The outputs of all queries of one service share this memory, which is taken when used.
	OutputBytes int64 `toml:"output_bytes" default:"128MiB" min:"64B"`
	// The batches of one service share this memory, beside the weights; a query that alone
	// needs more gets 413.
	IntermediateBytes int64 `toml:"intermediate_bytes" default:"1GiB" min:"64B"`
}

// Default returns the configuration of an empty file. It has no services, so it is not
// valid.
func Default() Config {
	var c Config
	setDefaults(&c)
	c.StateDir = defaultStateDir()
	return c
}

// follow applies a plan: it assigns services that do not name their devices, and sets their
// pipelines. It returns an error if the plan does not fit the services. Memory is not
// checked here, because only the device knows how much it has.
func follow(c *Config, p *planning.Placement) error {
	var services []planning.Service
	var devices []planning.Device
	for _, s := range c.Services {
		services = append(services, planning.Service{Name: s.Name, Model: strings.Join(s.Models(), ", ")})
	}
	for _, d := range c.Devices {
		devices = append(devices, planning.Device{Name: d.Name, Memory: math.Inf(1)})
	}
	if err := p.Fits(services, devices); err != nil {
		return err
	}
	for i := range p.Services {
		s := &p.Services[i]
		to := c.Service(s.Name)
		if len(to.On) == 0 {
			to.On = slices.Clone(s.Devices)
		}
		if len(s.Pipelines) == 0 {
			continue
		}
		if _, err := s.Routes(c.Pool().names(), s.Hash, s.Operators); err != nil { // of its own model
			return err
		}
		to.Planned = s
	}
	return nil
}

// Embedded returns the configuration for running without a file: two services of the zoo on
// the CPU.
func Embedded() Config {
	c := Default()
	c.Device = DeviceCPU
	for _, name := range []string{"resnet50", "bert"} {
		s := DefaultService()
		s.Name, s.Model, s.Target = name, ZooPrefix+name, 500*time.Millisecond
		c.Services = append(c.Services, s)
	}
	return c
}

// defaultStateDir returns the state folder that systemd has created, or else that of the
// user.
func defaultStateDir() string {
	if dir := SystemdFolder("STATE_DIRECTORY"); dir != "" {
		return dir
	}
	if dir := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "overlapd")
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return ""
	}
	return filepath.Join(home, ".local", "state", "overlapd")
}

// SystemdFolder returns the folder that systemd has created for the unit and set in an
// environment variable such as STATE_DIRECTORY. It is the first if there are several, or
// "".
func SystemdFolder(variable string) string {
	dir, _, _ := strings.Cut(os.Getenv(variable), ":")
	return dir
}

// Expanded returns the configuration as it runs. Versions have names of their own, see
// [Versioned]. A service with variants is replaced by one service for each variant. Such a
// service has the name SERVICE/VARIANT, the variant's model, and the variant itself as its
// only one; everything else is that of the original service. Expanding twice changes
// nothing.
func (c Config) Expanded() Config {
	c.Services = expanded(Versioned(c.Services))
	return c
}

// Divided returns the configuration as it runs under a policy. Under [Static], each device
// of the pool is replaced by one share for each of its services, named DEVICE/SERVICE, on
// which the service is alone. Work in different shares does not wait for each other, so
// each share is a device to the scheduler. Other policies leave the configuration as it is.
func Divided(c Config, policy string) Config {
	if policy != Static {
		return c
	}
	pool, services := c.Pool(), slices.Clone(c.Services)
	for i := range services {
		services[i].On = nil
	}
	c.Devices = nil
	for at, share := range pool {
		for i := range services {
			if slices.Contains(pool.on(&c.Services[i]), at) {
				share.Name = pool[at].Name + shareOf + services[i].Name
				c.Devices = append(c.Devices, share)
				services[i].On = append(services[i].On, share.Name)
			}
		}
	}
	c.Services = services
	return c
}

// Pool returns the devices that services run on. It is never empty: without [[device]]
// tables it has the one device that the top-level keys describe, which has no name and may
// be of the kind [DeviceAuto].
func (c *Config) Pool() Pool {
	if len(c.Devices) == 0 {
		kind := c.Device
		if kind == DeviceAuto && !c.loadsAtStart() {
			kind = DeviceCPU
		}
		return Pool{{Kind: kind, GPU: c.GPU, Profile: c.DeviceProfile}}
	}
	pool := slices.Clone(c.Devices)
	for i := range pool {
		d := &pool[i]
		if d.Kind == DeviceEmulated {
			d.Profile = cmp.Or(d.Profile, c.DeviceProfile)
		}
	}
	return pool
}

// On returns the indices in the pool of the devices that a service runs on.
func (c *Config) On(service string) []int {
	s := c.Service(service)
	if s == nil {
		return nil
	}
	return c.Pool().on(s)
}

// Emulated reports whether groups only take the time that they would take on a device,
// without computing anything. That applies to all devices of a pool or to none.
func (c *Config) Emulated() bool { return c.Pool()[0].Kind == DeviceEmulated }

// MayUseGPU reports whether services may run on a GPU.
func (c *Config) MayUseGPU() bool { return len(c.Pool().GPUs()) > 0 }

// Stays reports whether the model is loaded at the start and stays in memory. Variants are chosen by
// what they take in memory, so all of them stay.
func (c *Config) Stays(s *Service) bool {
	return c.loadsAtStart() || s.Keep || len(s.Variants) > 0
}

func (c *Config) loadsAtStart() bool {
	return c.Models.Load != LoadOnDemand && c.Models.Load != LoadByRequest
}

// AtStart returns the configuration with those services only whose models are loaded at the start.
func (c Config) AtStart() Config {
	all := c
	c.Services = slices.DeleteFunc(slices.Clone(all.Services), func(s Service) bool { return !all.Stays(&s) })
	return c
}

// Names returns the names of the services in order.
func (c *Config) Names() []string {
	names := make([]string, len(c.Services))
	for i := range c.Services {
		names[i] = c.Services[i].Name
	}
	return names
}

// Service returns the service with this name, or nil.
func (c *Config) Service(name string) *Service {
	i := slices.IndexFunc(c.Services, func(s Service) bool { return s.Name == name })
	if i < 0 {
		return nil
	}
	return &c.Services[i]
}

// keys calls visit for all keys of the configuration.
func (c *Config) keys(visit func(key)) { walk("", reflect.ValueOf(c).Elem(), visit) }

// TOML returns the configuration as a file that [Parse] reads back.
func (c Config) TOML() []byte { return c.toml(func(k key) bool { return !k.isTables() }) }

// BriefTOML is like TOML but omits keys with default values.
func (c Config) BriefTOML() []byte {
	return c.toml(func(k key) bool { return !k.isTables() && !k.isDefault() })
}

// entryNumber matches the index in the name of a key in an array of tables.
var entryNumber = regexp.MustCompile(`\[\d+\]`)

// toml returns the keys that has selects as a file. Variants are folded back into their
// services, and versions have the name that they share.
func (c Config) toml(has func(key) bool) []byte {
	c.Services = folded(expanded(c.Services)) // variants with the names that they have
	for i := range c.Services {
		c.Services[i].Name = c.Services[i].Base()
	}
	var b []byte
	table := ""
	c.keys(func(k key) {
		if !has(k) || k.name == deviceKey && len(c.Devices) > 0 { // the file has the tables instead
			return
		}
		dot := strings.LastIndexByte(k.name, '.')
		if of := k.name[:max(dot, 0)]; of != table {
			table = of
			if name := entryNumber.ReplaceAllString(table, ""); name != table {
				of = "[" + name + "]"
			}
			b = fmt.Appendf(b, "\n[%s]\n", of)
		}
		b = fmt.Appendf(b, "%s = %s\n", k.name[dot+1:], format(k.value))
	})
	return b
}
