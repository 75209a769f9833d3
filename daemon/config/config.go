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

// Limits on the configuration itself.
const (
	maxBytes    = 1 << 20
	MaxServices = 64
)

// The devices of a configuration. DeviceEmulated is also what stands wherever
// it is said what runs a model.
const (
	DeviceAuto     = "auto"
	DeviceCPU      = "cpu"
	DeviceCUDA     = "cuda"
	DeviceEmulated = "emulated"
)

const (
	// ZooPrefix starts a model that overlapd builds itself.
	ZooPrefix = "zoo:"

	// EmulatedPrefix starts a model of an emulated device.
	EmulatedPrefix = "emulated:"

	// UnixPrefix starts an address that is the path of a Unix socket.
	UnixPrefix = "unix:"

	// ReadyAll is the ready by which /v2/health/ready needs every service.
	ReadyAll = "all"

	// Values of mps.mode: a control daemon of our own for each part of a GPU, the
	// one that serves mps.dir, or none.
	MPSOwn      = "own"
	MPSExisting = "existing"
	MPSOff      = "off"
)

// Config is the configuration of a daemon. Each field is a key of the file,
// declared once by its tags, which [key] explains. What the keys mean to users is
// in docs/configuration.md.
type Config struct {
	Listen        string        `toml:"listen" default:"127.0.0.1:8000"`
	GRPCListen    string        `toml:"grpc_listen" default:"127.0.0.1:8001"`
	Ready         string        `toml:"ready" default:"any" oneof:"any,all"`
	StateDir      string        `toml:"state_dir"`
	Device        string        `toml:"device" default:"auto" oneof:"auto,cpu,cuda,emulated"`
	GPU           string        `toml:"gpu" gpu:"only"`
	DeviceProfile string        `toml:"device_profile" path:"file"`
	DeviceSeed    int           `toml:"device_seed" default:"1" min:"0" max:"1073741824"`
	Plan          string        `toml:"plan" path:"file" reload:"now"`
	Policy        string        `toml:"policy" default:"overlap"`
	Ways          int           `toml:"ways" default:"4" min:"1" max:"64"`
	DrainTimeout  time.Duration `toml:"drain_timeout" default:"30s" reload:"now"`
	LogLevel      string        `toml:"log_level" default:"info" oneof:"trace,debug,info,warn,error" reload:"now"`
	LogFormat     string        `toml:"log_format" default:"console" oneof:"console,json"`
	Metrics       bool          `toml:"metrics" default:"true"`

	// Admin is where the daemon is changed while it runs: at a path, at one that
	// "auto" stands for, or nowhere ("" or "off"). Root, the daemon's own user and
	// the members of the group may.
	Admin struct {
		Socket string `toml:"admin_socket" default:"auto"`
		Group  string `toml:"admin_group"`
	}

	Limits Limits `toml:"limits"`

	// TLS is how both endpoints are encrypted. Without a certificate they are not.
	TLS struct {
		Cert       string `toml:"cert" path:"file"`
		Key        string `toml:"key" path:"file"`
		ClientCA   string `toml:"client_ca" path:"file"`
		MinVersion string `toml:"min_version" default:"1.3" oneof:"1.2,1.3"`
	} `toml:"tls"`

	// Access is who may ask, also for /metrics. Without a file of tokens that is
	// everybody.
	Access struct {
		TokenFile string `toml:"token_file" path:"file"`
		Metrics   bool   `toml:"metrics" default:"true"`
	} `toml:"access"`

	Worker Worker `toml:"worker"`

	// Profile is how operator groups are measured, and the time that a daemon may
	// spend on it after each start.
	Profile struct {
		OnStart bool          `toml:"on_start" default:"true"`
		Time    time.Duration `toml:"time" default:"2m"`
		Groups  int           `toml:"groups" default:"600" min:"1" max:"1048576"`
		Repeats int           `toml:"repeats" default:"8" min:"1" max:"1024"`
		Spans   int           `toml:"spans" default:"4" min:"1" max:"16"`
		Seed    int           `toml:"seed" default:"1" min:"0" max:"1073741824"`
	} `toml:"profile"`

	// Predictor is where the predictor of groups comes from: a file, or the newest
	// in the state file that knows these models on this device, for which a daemon that
	// starts takes over what the source has: a folder, a file or a URL. With Train one is
	// fitted when measuring is done.
	Predictor struct {
		File   string `toml:"file" path:"file"`
		Source string `toml:"source" path:"file"`
		Train  bool   `toml:"train" default:"true"`
	} `toml:"predictor"`

	// Decisions bounds the decision log in the state folder: how large a file grows
	// before the next begins, and how many files are kept.
	Decisions struct {
		Log       bool  `toml:"log"`
		FileBytes int64 `toml:"file_bytes" default:"64MiB" min:"64KiB"`
		Files     int   `toml:"files" default:"4" min:"1" max:"1024"`
	} `toml:"decisions"`

	Tracing Tracing `toml:"tracing"`

	// CUDA is what every worker on a GPU gets.
	CUDA struct {
		TF32        bool  `toml:"tf32" default:"true" gpu:"only"`
		Graphs      bool  `toml:"graphs" gpu:"only"`
		MemoryLimit int64 `toml:"memory_limit" default:"0B" min:"1MiB" zero:"all" gpu:"only"`
	} `toml:"cuda"`

	// MPS is how workers share a GPU.
	MPS struct {
		Mode    string `toml:"mode" default:"own" oneof:"own,existing,off" gpu:"only"`
		Dir     string `toml:"dir" gpu:"only"`
		Program string `toml:"program" gpu:"only"`
	} `toml:"mps"`

	// MIG is whether the daemon owns the instances of a GPU that are its devices: an
	// owner creates those that are missing, and destroys them again.
	MIG struct {
		Owner bool `toml:"owner" gpu:"only"`
	} `toml:"mig"`

	// Devices are the pool, as it is configured: none where Device says what there is.
	// Everybody but those who read and write configurations asks for the Pool.
	Devices  Pool      `toml:"device" max:"64"`
	Services []Service `toml:"service" max:"64"`
}

// Tracing is the share of the queries that is traced, and the collector that gets
// their spans. Without a URL it is that of the environment, or none.
type Tracing struct {
	Endpoint    string  `toml:"endpoint"`
	Sample      float64 `toml:"sample" default:"1" min:"0" max:"1"`
	HeadersFile string  `toml:"headers_file" path:"file"`
	CAFile      string  `toml:"ca_file" path:"file"`
	CertFile    string  `toml:"cert_file" path:"file"`
	KeyFile     string  `toml:"key_file" path:"file"`
	Service     string  `toml:"service" default:"overlapd"`
	Instance    string  `toml:"instance"`
}

// Limits bounds what clients can take of the endpoint. A read may last from the
// first byte of a request to its last, and Hosts are further names that the headers
// Host and Origin may carry.
type Limits struct {
	RequestBytes  int64         `toml:"request_bytes" default:"64MiB" min:"1B"`
	MemoryBytes   int64         `toml:"memory_bytes" default:"512MiB" min:"1B"`
	HeaderBytes   int64         `toml:"header_bytes" default:"16KiB" min:"1KiB" max:"1MiB"`
	Connections   int           `toml:"connections" default:"1024" min:"1" max:"131072"`
	ReadTimeout   time.Duration `toml:"read_timeout" default:"30s"`
	WriteTimeout  time.Duration `toml:"write_timeout" default:"30s"`
	IdleTimeout   time.Duration `toml:"idle_timeout" default:"2m"`
	Hosts         []string      `toml:"hosts"`
	CompressBytes int64         `toml:"compress_bytes" default:"1KiB" min:"0B"`
}

// Worker is what every worker gets. Threads is 0 for one per core, and a service
// may set its own.
type Worker struct {
	Threads           int           `toml:"threads" default:"0" min:"0" max:"1024"`
	Spin              bool          `toml:"spin"`
	Poll              time.Duration `toml:"poll" default:"200µs" min:"0s" max:"10ms"`
	OverrunFactor     float64       `toml:"overrun_factor" default:"2" min:"1" max:"100"`
	SpanTimeout       time.Duration `toml:"span_timeout" default:"10s"`
	LoadTimeout       time.Duration `toml:"load_timeout" default:"2m"`
	RestartLimit      int           `toml:"restart_limit" default:"30" min:"1" max:"1048576"`
	BackoffMin        time.Duration `toml:"backoff_min" default:"50ms"`
	BackoffMax        time.Duration `toml:"backoff_max" default:"1s"`
	InputBytes        int64         `toml:"input_bytes" default:"256MiB" min:"64B"`
	OutputBytes       int64         `toml:"output_bytes" default:"128MiB" min:"64B"`
	IntermediateBytes int64         `toml:"intermediate_bytes" default:"1GiB" min:"64B"`
	TrimAfter         time.Duration `toml:"trim_after" default:"1m" min:"0s" max:"24h"`
}

// Default returns the configuration of an empty file. It has no service.
func Default() Config {
	var c Config
	setDefaults(&c)
	c.StateDir = defaultStateDir()
	return c
}

// follow puts the services that do not say where they are where a plan has them, and gives
// them its pipelines, or returns why it is no plan for them. What memory there is, whoever
// loads them knows.
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

// Embedded returns the configuration that runs without a file: two services
// of the zoo on the CPU.
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

// defaultStateDir returns the state folder that systemd made, else the user's own.
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

// SystemdFolder returns the folder that systemd made for the unit and names in
// a variable such as STATE_DIRECTORY, the first if there are several, or "".
func SystemdFolder(variable string) string {
	dir, _, _ := strings.Cut(os.Getenv(variable), ":")
	return dir
}

// Expanded returns the configuration as it is run: in the place of a service with variants
// it has one service for each, which has the name SERVICE/VARIANT, the model of the
// variant, and that one variant, now with its name; all else is as the service has it. An
// expanded configuration is returned as it is.
func (c Config) Expanded() Config {
	c.Services = expanded(c.Services)
	return c
}

// Divided returns the configuration as it is run under a policy. Under [Static] each device
// of the pool gives way to one for the share of each service on it, DEVICE/SERVICE, on which
// that service is alone: what runs in different shares waits for nobody, and so has
// a place in the pool each. Under any other policy nothing changes.
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

// Pool returns the devices that the services run on, never none: without tables of
// devices it is the one that the keys above them describe, which has no name and may
// have the kind [DeviceAuto].
func (c *Config) Pool() Pool {
	if len(c.Devices) == 0 {
		return Pool{{Kind: c.Device, GPU: c.GPU, Profile: c.DeviceProfile}}
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

// On returns on which devices of the pool a service is, in its order.
func (c *Config) On(service string) []int {
	s := c.Service(service)
	if s == nil {
		return nil
	}
	return c.Pool().on(s)
}

// Emulated reports whether nothing is computed, and groups only take the time that
// they would on a device. That holds for all devices of a pool or for none.
func (c *Config) Emulated() bool { return c.Pool()[0].Kind == DeviceEmulated }

// MayUseGPU reports whether services may come to run on a GPU.
func (c *Config) MayUseGPU() bool { return len(c.Pool().GPUs()) > 0 }

// Names returns the names of the services in their order.
func (c *Config) Names() []string {
	names := make([]string, len(c.Services))
	for i := range c.Services {
		names[i] = c.Services[i].Name
	}
	return names
}

// Service returns the entry of a service, or nil.
func (c *Config) Service(name string) *Service {
	i := slices.IndexFunc(c.Services, func(s Service) bool { return s.Name == name })
	if i < 0 {
		return nil
	}
	return &c.Services[i]
}

// keys visits all keys of a configuration.
func (c *Config) keys(visit func(key)) { walk("", reflect.ValueOf(c).Elem(), visit) }

// TOML returns the configuration as a file that [Parse] reads back.
func (c Config) TOML() []byte { return c.toml(func(k key) bool { return !k.isTables() }) }

// BriefTOML returns the same without the keys that have their defaults.
func (c Config) BriefTOML() []byte {
	return c.toml(func(k key) bool { return !k.isTables() && !k.isDefault() })
}

// entryNumber is which entry of an array of tables a key is of.
var entryNumber = regexp.MustCompile(`\[\d+\]`)

func (c Config) toml(has func(key) bool) []byte {
	c.Services = folded(expanded(c.Services)) // variants with the names that they have
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
