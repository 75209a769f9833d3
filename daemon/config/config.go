package config

import (
	"os"
	"path/filepath"
	"time"

	"github.com/overlapd/overlapd/cuda/mps"
)

// Limits on the configuration itself.
const (
	MaxBytes    = 1 << 20
	MaxServices = 64
)

// Config is the configuration of a daemon. [Default] says what each field is
// when the file does not name it.
type Config struct {
	Listen        string // "host:port", or "unix:/path"
	GRPCListen    string // the same for gRPC, "" for none
	StateDir      string // state file and cut models
	Device        string // "auto", "cpu", "cuda" or "emulated"
	GPU           string // index, UUID or PCI address, "" for the first
	DeviceProfile string // what an emulated device is made of
	DeviceSeed    int    // of the times that an emulated device takes
	Policy        string
	Ways          int           // groups that a search for the next one asks about at once
	DrainTimeout  time.Duration // how long a stopping daemon works on what it has accepted
	LogLevel      string
	LogFormat     string // "console" or "json"
	Metrics       bool   // the endpoint has /metrics
	Admin         Admin
	Limits        Limits
	TLS           TLS
	Access        Access
	Worker        Worker
	Profile       Profile
	Predictor     Predictor
	Decisions     Decisions
	Tracing       Tracing
	CUDA          CUDA
	MPS           MPS
	MIG           MIG
	Services      []Service
}

// Limits bounds what clients can take of the endpoint.
type Limits struct {
	RequestBytes  int64         // body of one request, before and after decompression
	MemoryBytes   int64         // bodies of all requests being read or decoded, and long answers until they are sent
	HeaderBytes   int64         // header of one request
	Connections   int           // open at once
	ReadTimeout   time.Duration // from the first byte of a request to its last
	WriteTimeout  time.Duration // of one answer
	IdleTimeout   time.Duration // between two requests on a connection
	Hosts         []string      // further names that Host and Origin may carry
	CompressBytes int64         // answers shorter than this are never compressed
}

// Worker is what every worker gets. A service may set its own threads.
type Worker struct {
	Threads           int           // intra-op, 0 for one per core
	Spin              bool          // waiting threads spin
	Poll              time.Duration // how long daemon and worker look for each other's next message before they sleep
	SpanTimeout       time.Duration
	LoadTimeout       time.Duration
	RestartLimit      int // losses within a minute after which the service is given up
	BackoffMin        time.Duration
	BackoffMax        time.Duration
	InputBytes        int64 // shared memory for the inputs of all queries of a service
	OutputBytes       int64 // shared memory for their outputs
	IntermediateBytes int64 // for the intermediates of paused batches
}

// Profile says how operator groups are measured.
type Profile struct {
	OnStart bool          // a daemon whose policy overlaps measures while it is idle, if it has no predictor
	Time    time.Duration // that it may spend on that after each start
	Groups  int           // to measure in all
	Repeats int           // runs of each group, at most
	Spans   int           // of a group, at most
	Seed    int           // of what is measured
}

// Predictor says where the predictor of groups comes from.
type Predictor struct {
	File  string // "" for the newest in the state file that knows these models on this device
	Train bool   // fit one when measuring is done
}

// Decisions bounds the decision log in the state folder.
type Decisions struct {
	Log       bool
	FileBytes int64 // after which the next file begins
	Files     int   // that are kept
}

// Service is one service.
type Service struct {
	Name          string
	Model         string        // "zoo:NAME", the path of an ONNX file, or "emulated:NAME" on an emulated device
	Target        time.Duration // QoS target
	QueueLimit    int
	MaxBatch      int // largest batch formed by merging queries, 1 for none
	MaxQueryBatch int // largest batch dimension of one query
	Threads       int // 0 for worker.threads
	Cut           int // segments to cut the model into, 0 for one per node, on a GPU for 24; -1 for one per node there, too
	BestEffort    bool
	Sizes         []int // batch sizes that are measured, none for 1 and doubles of it up to MaxBatch and at least 4
	SeqLens       []int // sequence lengths that are measured, if the model has one
	MPS           MPSLimits
}

const (
	// ZooPrefix starts a model that overlapd builds itself.
	ZooPrefix = "zoo:"

	// EmulatedPrefix starts a model of an emulated device.
	EmulatedPrefix = "emulated:"

	// UnixPrefix starts an address that is the path of a Unix socket.
	UnixPrefix = "unix:"
)

// Emulated reports whether nothing is computed, and groups only take the time
// that they would on a device.
func (c *Config) Emulated() bool { return c.Device == DeviceEmulated }

// Default returns the configuration of an empty file. It has no service.
func Default() Config {
	return Config{
		Listen:       "127.0.0.1:8000",
		GRPCListen:   "127.0.0.1:8001",
		StateDir:     defaultStateDir(),
		Device:       DeviceAuto,
		DeviceSeed:   1,
		Policy:       "overlap",
		Ways:         4,
		DrainTimeout: 30 * time.Second,
		LogLevel:     "info",
		LogFormat:    "console",
		Metrics:      true,
		Admin:        Admin{Socket: adminAuto},
		Limits: Limits{
			RequestBytes: 64 << 20,
			MemoryBytes:  512 << 20,
			HeaderBytes:  16 << 10,
			Connections:  1024,
			ReadTimeout:  30 * time.Second,
			WriteTimeout: 30 * time.Second,
			IdleTimeout:  2 * time.Minute,

			CompressBytes: 1 << 10,
		},
		TLS:    TLS{MinVersion: "1.3"},
		Access: Access{Metrics: true},
		Worker: Worker{
			Poll:              200 * time.Microsecond,
			SpanTimeout:       10 * time.Second,
			LoadTimeout:       2 * time.Minute,
			RestartLimit:      30,
			BackoffMin:        50 * time.Millisecond,
			BackoffMax:        time.Second,
			InputBytes:        256 << 20,
			OutputBytes:       128 << 20,
			IntermediateBytes: 1 << 30,
		},
		Profile:   Profile{OnStart: true, Time: 2 * time.Minute, Groups: 600, Repeats: 8, Spans: 4, Seed: 1},
		Predictor: Predictor{Train: true},
		Decisions: Decisions{FileBytes: 64 << 20, Files: 4},
		Tracing:   Tracing{Sample: 1, Service: "overlapd"},
		CUDA:      CUDA{ArenaExtend: extendDoubling},
		MPS:       MPS{Mode: MPSOwn},
	}
}

// DefaultService returns a service of which only the name and the model are
// missing.
func DefaultService() Service {
	return Service{
		Target: 100 * time.Millisecond, QueueLimit: 256, MaxBatch: 1, MaxQueryBatch: 64,
		SeqLens: []int{16, 64}, MPS: MPSLimits{Priority: mps.PriorityNormal.String()},
	}
}

// sizes returns the batch sizes that are measured.
func (s *Service) MeasuredSizes() []int {
	if len(s.Sizes) > 0 {
		return s.Sizes
	}
	const least = 4 // clients choose batches of their own, too
	var sizes []int
	most := max(s.MaxBatch, min(least, s.MaxQueryBatch))
	for n := 1; n < most; n *= 2 {
		sizes = append(sizes, n)
	}
	return append(sizes, most)
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

// defaultStateDir is what systemd gives, else the user's own.
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

// Names returns the names of the services in their order.
func (c *Config) Names() []string {
	names := make([]string, len(c.Services))
	for i := range c.Services {
		names[i] = c.Services[i].Name
	}
	return names
}
