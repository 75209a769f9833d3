package structure

// arrow tells which others of the module a package may import, and why it may
// import no more.
type arrow struct {
	pkg   string
	may   []string
	why   string
	tests []string // what its tests may import besides
}

// arrows are the arrows of all packages, those at the bottom first. The same
// table is in ARCHITECTURE.md.
var arrows = []arrow{
	{
		pkg: "models",
		why: "it is the vocabulary that all packages share; whatever it imported, all would",
	},
	{
		pkg: "stats",
		why: "it sums up numbers of any kind and knows none of them",
	},
	{
		pkg: "textfile",
		why: "it reads files of any kind and knows none of them",
	},
	{
		pkg: "models/zoo",
		may: []string{"models", "textfile"},
		why: "it writes files; to run them is the business of others",
	},
	{
		pkg: "predictor",
		may: []string{"models", "textfile"},
		why: "training, the daemon and the simulator share it, so it knows none of them",
	},
	{
		pkg:   "overlap",
		may:   []string{"models"},
		why:   "the scheduler is a value that the daemon, the simulator and the tests drive; it declares the predictor it needs itself",
		tests: []string{"predictor"},
	},
	{
		pkg:   "device",
		may:   []string{"models", "predictor", "textfile"},
		why:   "it is what a group runs on, modelled: the simulator and the emulated device share it, and the scheduler's predictor is never it",
		tests: []string{"training", "training/fit"},
	},
	{
		pkg:   "device/synthetic",
		may:   []string{"device", "predictor"},
		why:   "it is a device and a predictor of it as files; how either is made, only its test knows",
		tests: []string{"models", "training", "training/fit"},
	},
	{
		pkg: "report",
		why: "it writes what commands found; what that is they say in words and numbers",
	},
	{
		pkg: "perfetto",
		why: "it is a file format; whose timeline it holds, it is not told",
	},
	{
		pkg:   "sim",
		may:   []string{"device", "models", "overlap", "perfetto", "predictor", "stats", "textfile"},
		why:   "it drives the scheduler that serves, in virtual time; whatever else decided would not be simulated",
		tests: []string{"device/synthetic", "selection", "training", "training/fit"},
	},
	{
		pkg:   "sim/bound",
		may:   []string{"device", "models", "sim", "stats"},
		why:   "it says what no schedule could beat, so it may know nothing of how schedules are made",
		tests: []string{"device/synthetic", "overlap", "predictor"},
	},
	{
		pkg:   "overlap/journal",
		may:   []string{"models", "overlap", "stats"},
		why:   "it writes decisions down and makes them again; whoever decides stays free of files",
		tests: []string{"predictor"},
	},
	{
		pkg:   "training",
		may:   []string{"models", "predictor", "stats", "textfile"},
		why:   "what was measured and what is to be measured next; how a group is run is the business of others",
		tests: []string{"models/zoo"},
	},
	{
		pkg:   "training/advice",
		may:   []string{"predictor", "report", "stats", "training", "training/fit"},
		why:   "it reads what was measured; nothing that serves depends on it",
		tests: []string{"models"},
	},
	{
		pkg: "training/fit",
		may: []string{"device", "models", "predictor", "report", "stats", "training"},
		why: "only the training command links it, so that the daemon carries no graph library",
	},
	{
		pkg: "ort",
		may: []string{"models"},
		why: "it is ONNX Runtime's interface in Go and knows no queries; the types of values are ONNX's, as models has them",
	},
	{
		pkg: "cuda/driver/fakedriver",
		why: "it is a CUDA driver for tests of whoever calls one; no program links it",
	},
	{
		pkg:   "cuda/driver",
		why:   "it is the CUDA driver's interface in Go; it knows neither models nor ONNX Runtime",
		tests: []string{"cuda/driver/fakedriver"},
	},
	{
		pkg:   "cuda",
		why:   "it is what NVML says; who uses the GPU for what is the business of others",
		tests: []string{"cuda/fake"},
	},
	{
		pkg: "cuda/fake",
		why: "it is a host with GPUs for tests of any package; no program links it",
	},
	{
		pkg: "cuda/mps/fakemps",
		why: "it stands for programs of NVIDIA's, so it knows nothing of ours",
	},
	{
		pkg: "executor/child",
		why: "it runs processes; what they are for is the business of whoever starts them",
	},
	{
		pkg:   "cuda/mps",
		may:   []string{"executor/child"},
		why:   "it runs one program of NVIDIA's; which device that serves, and whose clients come, it is told",
		tests: []string{"cuda/mps/fakemps"},
	},
	{
		pkg:   "cuda/mig",
		may:   []string{"cuda"},
		why:   "it divides GPUs as it is told and knows no services",
		tests: []string{"cuda/fake"},
	},
	{
		pkg:   "segments/wire",
		may:   []string{"models"},
		why:   "it is what the daemon and a worker share, so it holds neither: no engine, and no cgo",
		tests: []string{"models/zoo"},
	},
	{
		pkg: "segments/worker",
		may: []string{"models", "segments/wire"},
		why: "it is the loop of a worker around any engine; a daemon runs it as well, with one that is emulated",
	},
	{
		pkg:   "segments",
		may:   []string{"cuda/driver", "models", "ort", "segments/wire", "segments/worker", "stats"},
		why:   "it lives inside a worker, which knows one model and nothing of scheduling",
		tests: []string{"cuda/driver/fakedriver", "models/zoo"},
	},
	{
		pkg:   "executor",
		may:   []string{"executor/child", "models", "segments/wire", "segments/worker"},
		why:   "it runs the groups it is given; what runs next is decided elsewhere, and ONNX Runtime is called only in workers",
		tests: []string{"models/zoo", "ort", "segments", "stats"},
	},
	{
		pkg:   "executor/emulated",
		may:   []string{"device", "models", "segments/wire", "segments/worker"},
		why:   "it sleeps in the place of an engine; the life of a service, and what runs together, is the executor's business",
		tests: []string{"executor", "predictor"},
	},
	{
		pkg: "planning",
		may: []string{"executor/child", "models", "stats", "textfile"},
		why: "it decides what is loaded where by numbers that it is given; who measured them, and who loads, is the business of others",
	}, {
		pkg: "selection",
		may: []string{"textfile"},
		why: "it decides which variant runs by numbers that it is given; who measured them, and who runs it, is the business of others",
	},

	{
		pkg:   "daemon/observe/metrics",
		may:   []string{"cuda", "daemon/observe", "daemon/query", "daemon/status", "executor", "models", "overlap"},
		why:   "it tells Prometheus what listeners have counted and what is published; how a daemon comes to it is the daemon's business",
		tests: []string{"daemon/gpu"},
	},
	{
		pkg:   "daemon/observe/timeline",
		may:   []string{"daemon/observe", "daemon/query", "daemon/status", "models", "overlap", "stats"},
		why:   "it remembers what was decided; commands that look at a daemon read it as well, so it knows nothing of serving",
		tests: []string{"predictor"},
	},
	{
		pkg: "daemon/observe/dashboard",
		why: "it is a page; what the page shows it asks for as any client does",
	},
	{
		pkg:   "daemon/access",
		may:   []string{"daemon/config", "textfile"},
		why:   "it says who may ask, of bytes and files; what is asked for, and over which protocol, it is not told",
		tests: []string{"cuda/fake", "cuda/mps/fakemps", "daemon/access/fakeca"},
	},
	{
		pkg: "daemon/access/fakeca",
		why: "it makes certificates for tests of any package; no program links it",
	},
	{
		pkg: "daemon/rpc/inference",
		why: "it is generated: the protocol and nothing else",
	},
	{
		pkg: "daemon/observe/tracing",
		why: "it is what is recorded of a query, in plain fields; whoever writes them need not know OpenTelemetry",
	},
	{
		pkg:   "daemon/observe/tracing/otlp",
		may:   []string{"daemon/access", "daemon/config", "daemon/observe/tracing", "textfile"},
		why:   "it sends what was recorded of queries to a collector, and knows nothing of how they are answered",
		tests: []string{"daemon/observe/tracing/collector"},
	},
	{
		pkg: "daemon/observe/tracing/collector",
		why: "it is a collector of spans for tests of any package; no program links it",
	},
	{
		pkg: "daemon/query",
		may: []string{"daemon/observe/tracing", "models"},
		why: "it is what all protocols share of a query; how one is read, and who decides about it, it is not told",
	},
	{
		pkg:   "daemon/gpu",
		may:   []string{"cuda", "cuda/mig", "cuda/mps", "daemon/config", "models"},
		why:   "it takes a GPU into use as a configuration says, watches it and gives it back; how services run there is the daemon's business",
		tests: []string{"cuda/fake", "cuda/mps/fakemps"},
	},
	{
		pkg: "daemon/statefile",
		why: "it keeps bytes whole; what they mean is the business of whoever stores them",
	},
	{
		pkg: "daemon/config",
		may: []string{"cuda/mig", "daemon/observe/tracing", "models/zoo", "overlap", "planning"},
		why: "it knows which values there are, and asks the packages that know them; what is done with them is the business of whoever reads it",
	},
	{
		pkg:   "daemon/config/triton",
		may:   []string{"daemon/config", "daemon/rpc/inference", "models"},
		why:   "it makes a configuration of another server's files; the daemon serves by one and does not ask where it comes from",
		tests: []string{"models/zoo"},
	},
	{
		pkg:   "daemon/rpc",
		may:   []string{"daemon/access", "daemon/config", "daemon/observe/tracing", "daemon/query", "daemon/rpc/inference", "models"},
		why:   "it is a codec: it reads a query and writes an answer; what becomes of one is the business of others",
		tests: []string{"daemon/access/fakeca"},
	},
	{
		pkg:   "daemon/learning",
		may:   []string{"models", "predictor", "training"},
		why:   "it decides what is measured and fitted, as a value; what is run, read and written is the scheduler goroutine's business",
		tests: []string{"daemon/statefile"},
	},
	{
		pkg: "daemon/status",
		may: []string{"daemon/gpu", "daemon/query", "models"},
		why: "it is how a daemon stands, written by one goroutine and read by all others; it knows neither the one nor the others",
	},
	{
		pkg:   "daemon/http",
		may:   []string{"daemon/access", "daemon/config", "daemon/observe/dashboard", "daemon/observe/metrics", "daemon/observe/timeline", "daemon/observe/tracing", "daemon/query", "daemon/status", "models"},
		why:   "it is a codec: it reads a query and writes an answer; what becomes of one, and what the daemon says of itself, is the business of others",
		tests: []string{"daemon/access/fakeca", "daemon/observe", "daemon/rpc", "daemon/rpc/inference", "overlap"},
	},
	{
		pkg: "daemon/observe",
		may: []string{"daemon/observe/tracing", "daemon/query", "executor", "models", "overlap"},
		why: "it is what the scheduler goroutine lets others see; who listens, it is not told",
	},
	{
		pkg: "daemon/loop",
		may: []string{"daemon/config", "daemon/gpu", "daemon/learning", "daemon/observe", "daemon/observe/timeline", "daemon/query", "daemon/status", "executor", "models", "overlap", "overlap/journal", "predictor", "segments/wire", "selection", "training"},
		why: "it decides about what the daemon hands in; protocols, files and how workers are made are the daemon's business",
	},
	{
		pkg:   "daemon",
		may:   []string{"cuda", "cuda/mig", "cuda/mps", "daemon/access", "daemon/config", "daemon/gpu", "daemon/http", "daemon/learning", "daemon/loop", "daemon/observe", "daemon/observe/metrics", "daemon/observe/timeline", "daemon/observe/tracing", "daemon/observe/tracing/otlp", "daemon/query", "daemon/rpc", "daemon/statefile", "daemon/status", "device", "executor", "executor/child", "executor/emulated", "models", "models/zoo", "overlap", "overlap/journal", "planning", "predictor", "segments/wire", "textfile", "training"},
		why:   "ONNX Runtime stays out of the daemon's process: a model that crashes it must end a worker, not the daemon",
		tests: []string{"cuda/fake", "cuda/mps/fakemps", "daemon/access/fakeca", "daemon/rpc/inference", "daemon/observe/tracing/collector", "ort", "segments", "segments/worker", "selection"},
	},
	{
		pkg: "daemon/admin",
		may: []string{"daemon/access", "daemon/config"},
		why: "it asks and answers about a daemon; what is done, and what is logged, is the host's to say",
	},
	{
		pkg:   "cmd/overlapd/load",
		may:   []string{"models", "report", "stats"},
		why:   "it loads a daemon from outside, as any client does",
		tests: []string{"daemon"},
	},
	{
		pkg:   "cmd/overlapd/cutcost",
		may:   []string{"models", "ort", "report", "segments", "segments/wire", "segments/worker", "stats"},
		why:   "it compares the engine with ONNX Runtime; no daemon is involved",
		tests: []string{"models/zoo"},
	},
	{
		pkg:   "cmd/overlapd/reproduce",
		may:   []string{"device", "models", "planning", "predictor", "report", "selection", "sim", "sim/bound", "stats", "textfile", "training", "training/fit"},
		why:   "it puts simulated runs beside published ones; what is measured and decided stays where it is",
		tests: []string{"overlap"},
	},
	{
		pkg:   "cmd/overlapd",
		may:   []string{"cmd/overlapd/cutcost", "cmd/overlapd/load", "cmd/overlapd/reproduce", "cuda", "cuda/mig", "cuda/mps", "daemon", "daemon/access", "daemon/admin", "daemon/config", "daemon/config/triton", "daemon/gpu", "daemon/loop", "daemon/observe/timeline", "daemon/statefile", "daemon/status", "device", "device/synthetic", "executor", "executor/child", "executor/emulated", "models", "models/zoo", "ort", "overlap", "overlap/journal", "perfetto", "planning", "predictor", "report", "segments", "segments/wire", "segments/worker", "selection", "sim", "sim/bound", "stats", "textfile", "training", "training/advice", "training/fit"},
		why:   "it wires everything; being a main package, nothing imports it",
		tests: []string{"cuda/fake", "cuda/mps/fakemps", "daemon/access/fakeca"},
	},
	{
		pkg:   "test",
		why:   "it holds tests of the built program, which it meets as its clients and users do",
		tests: []string{"cmd/overlapd/load", "daemon/rpc/inference", "models", "models/zoo", "ort", "report"},
	},
	{
		pkg: "scripts/thinfatbin",
		why: "it makes a file for the GPU bundle, and knows of nothing else",
	},
	{
		pkg:   "test/conformance",
		why:   "it compares the engine with ONNX Runtime; no daemon is involved",
		tests: []string{"models", "models/zoo", "ort", "segments"},
	},
	{
		pkg: "test/gpu",
		why: "it finds out what a machine's GPU is worth, from outside of daemons and probes, and with workers whose rounds it says itself",
		tests: []string{
			"cmd/overlapd/cutcost", "cmd/overlapd/load", "cuda", "cuda/driver", "cuda/driver/fakedriver", "cuda/fake", "cuda/mps", "cuda/mps/fakemps",
			"daemon/config", "executor", "executor/child", "models", "models/zoo", "ort", "segments/wire", "stats",
		},
	},
	{
		pkg:   "test/structure",
		why:   "it reads the source and builds nothing; only the example configurations are parsed as the daemon does",
		tests: []string{"daemon/config"},
	},
}

// unreachable are packages that a package must not reach through any others
// either: what a process links counts as much as what a file imports.
var unreachable = []struct {
	from, to string
	why      string
}{
	{"daemon", "ort", "a model that crashes ONNX Runtime must end a worker, not the daemon"},
	{"executor", "ort", "a model that crashes ONNX Runtime must end a worker, not whoever started it"},
	{"daemon", "cuda/driver", "a context of CUDA in the daemon would take memory of the GPU and share the fate of its clients"},
	{"executor", "cuda/driver", "a context of CUDA is a worker's"},
	{"daemon/observe", "daemon/observe/metrics", "an event is plain memory; Prometheus is a listener's business"},
	{"daemon/observe", "daemon/observe/tracing/otlp", "an event is plain memory; OpenTelemetry is the business of who sends records on"},
	{"daemon/loop", "daemon/http", "who decides knows no protocol"},
	{"daemon/loop", "daemon/rpc", "who decides knows no protocol"},
	{"daemon/loop", "daemon/observe/metrics", "who decides emits events; Prometheus is a listener's business"},
	{"daemon/loop", "daemon/observe/tracing/otlp", "who decides emits events; OpenTelemetry is the business of who sends records on"},
	{"daemon/observe", "daemon/http", "who decides knows no protocol"},
	{"daemon/observe", "daemon/rpc", "who decides knows no protocol"},
	{"daemon/status", "daemon/observe/metrics", "a status is plain memory, whoever reads it"},
	{"daemon/status", "daemon/observe/tracing/otlp", "a status is plain memory, whoever reads it"},
}

// owners tells which packages may import what is not of the module, and why
// the others may not. A prefix stands for everything below it. Go's own
// packages are free unless they stand here.
var owners = []struct {
	prefix string
	who    []string
	why    string
}{
	{"C", []string{"cuda/driver", "ort"}, "cgo is the business of whoever calls a C library, so that all others build and are checked without it"},
	{"unsafe", []string{"cuda/driver", "cuda/driver/fakedriver", "daemon/admin", "daemon/rpc/inference", "ort", "segments/wire"}, "memory outside Go is turned into slices in few places, the kernel is asked for a peer's groups in one, and generated code turns a text into bytes"},
	{"os/exec", []string{"cuda/driver/fakedriver", "cuda/mps", "cuda/mps/fakemps", "daemon/statefile", "executor", "executor/child", "planning", "cmd/overlapd", "cmd/overlapd/cutcost"}, "whoever starts a process must reap it"},
	{"syscall", []string{"cuda/mps", "cuda/mps/fakemps", "cmd/overlapd", "daemon", "daemon/config", "daemon/http", "executor/child", "segments", "segments/wire"}, "x/sys/unix has the same and more; only where the standard library's signatures name it"},
	{"log", nil, "packages return errors and emit events; the daemon logs them with zerolog"},

	{"google.golang.org/protobuf", []string{"daemon/config/triton", "daemon/rpc", "daemon/rpc/inference", "daemon/observe/tracing/collector", "models", "models/zoo", "segments"}, "ONNX is read and written by wire format, where files and graphs are handled, gRPC carries messages, and Triton configures models by them"},
	{"google.golang.org/grpc", []string{"daemon/rpc", "daemon/rpc/inference"}, "gRPC ends at its server; nothing behind it knows of calls"},
	{"github.com/cncf/xds", []string{"daemon/rpc"}, "messages of load reports are made where gRPC sends them; all else hands in numbers"},
	{"google.golang.org/genproto/googleapis/rpc", []string{"daemon/rpc"}, "what a status carries besides its text is written where statuses are"},
	{"github.com/valyala/fasthttp", []string{"daemon/http", "cmd/overlapd", "cmd/overlapd/load", "test"}, "HTTP ends at the endpoint; nothing behind it knows of requests"},
	{"github.com/klauspost/compress", []string{"scripts/thinfatbin"}, "compilers of CUDA compress kernels with zstd and LZ4, which only what makes the GPU bundle reads; files of ours are gzip"},
	{"github.com/rs/zerolog", []string{"daemon", "daemon/gpu", "daemon/http", "daemon/loop", "daemon/query", "cmd/overlapd"}, "the core emits events; only the daemon logs"},
	{"go.etcd.io/bbolt", []string{"daemon", "daemon/statefile", "training"}, "there is one state file, opened in one place; the daemon and training keep in it what was measured"},
	{"gorgonia.org/gorgonia", []string{"training/fit"}, "networks are fitted in one package, which the daemon does not link"},
	{"gorgonia.org/tensor", []string{"training/fit"}, "networks are fitted in one package, which the daemon does not link"},
	{"go4.org/unsafe/assume-no-moving-gc", []string{"training/fit"}, "gorgonia wants a version that knows this Go"},
	{"gonum.org/v1/gonum", []string{"selection", "training", "training/fit"}, "linear algebra belongs to fitting, combinations to sampling, vectors and special functions to computing policies; serving a predictor or a policy is plain loops"},
	{"gonum.org/v1/plot", []string{"report"}, "pictures are for people who read reports"},
	{"github.com/prometheus", []string{"daemon/observe/metrics"}, "the core counts in plain numbers; only what answers a scrape speaks Prometheus"},
	{"go.opentelemetry.io/otel", []string{"daemon/observe/tracing/otlp"}, "the daemon notes what becomes of a query in plain numbers; only what sends them to a collector speaks OpenTelemetry"},
	{"go.opentelemetry.io/proto/otlp", []string{"daemon/observe/tracing/collector"}, "what a collector is sent is read where tests have one"},
	{"github.com/pelletier/go-toml", []string{"daemon/config"}, "there is one configuration and one package that reads it"},
	{"github.com/agext/levenshtein", []string{"daemon/config"}, "words that are alike are found where keys are read; Cobra does so for commands"},
	{"github.com/NVIDIA/go-nvml", []string{"cuda", "cuda/fake"}, "NVML's answers become facts and sentences in one package"},
	{"charm.land", []string{"cmd/overlapd"}, "only commands talk to a terminal"},
	{"github.com/spf13/cobra", []string{"cmd/overlapd"}, "the command line is wiring"},
	{"github.com/spf13/pflag", []string{"cmd/overlapd"}, "the command line is wiring"},
	{"github.com/coreos/go-systemd", []string{"cmd/overlapd"}, "how overlapd is started is wiring"},
	{"github.com/schollz/progressbar", []string{"cmd/overlapd"}, "only commands talk to a terminal"},
	{"golang.org/x/term", []string{"cmd/overlapd"}, "only commands talk to a terminal"},
	{"github.com/HdrHistogram/hdrhistogram-go", []string{"cmd/overlapd/load"}, "latencies are counted where load is made"},
	{"golang.org/x/time/rate", []string{"daemon/observe/tracing/otlp", "executor", "executor/child"}, "what a worker says is passed on at a limited rate by whoever listens to it, and so are losses of spans"},
	{"golang.org/x/sys", []string{
		"cuda/driver/fakedriver", "cuda/mps", "cuda/mps/fakemps", "models", "segments", "segments/wire", "segments/worker", "executor", "executor/child", "executor/emulated", "daemon", "daemon/http", "daemon/rpc", "daemon/access", "daemon/admin", "daemon/statefile", "cmd/overlapd", "cmd/overlapd/load", "cmd/overlapd/cutcost",
	}, "the scheduler and the predictor ask nothing of the system, and ort asks the system through C"},

	{"github.com/google/go-cmp", nil, "it is made for tests, and panics"},
	{"github.com/rogpeppe/go-internal", nil, "it is made for tests"},
	{"go.uber.org/goleak", nil, "it is made for tests"},
	{"pgregory.net/rapid", nil, "it is made for tests"},
	{"go.yaml.in/yaml", nil, "tests read documents for other programs; the configuration is TOML"},
}

// testsOwn are the prefixes that only tests import, and every test may.
var testsOwn = []string{
	"github.com/google/go-cmp",
	"github.com/rogpeppe/go-internal",
	"go.uber.org/goleak",
	"pgregory.net/rapid",
	"go.yaml.in/yaml",
}

// testsToo are prefixes of owners that tests of any package may import as
// well: they make the files, processes and requests that a test needs.
var testsToo = []string{
	"github.com/cncf/xds",
	"github.com/NVIDIA/go-nvml",
	"golang.org/x/sys",
	"google.golang.org/genproto/googleapis/rpc",
	"google.golang.org/grpc",
	"google.golang.org/protobuf",
	"os/exec",
	"syscall",
	"unsafe",
}

// pure is what the scheduler may import of Go's own packages: none that has a
// clock running, a lock, a log, a file or a socket.
var pure = []string{"cmp", "container/heap", "errors", "fmt", "iter", "maps", "math", "math/bits", "slices", "strconv", "sort", "strconv", "strings", "time"}

// impure are functions of those packages that would make the scheduler's
// decisions depend on more than its arguments, or speak of them to others.
var impure = []string{
	"time.Now", "time.Since", "time.Until", "time.Sleep", "time.After", "time.AfterFunc", "time.Tick",
	"time.NewTimer", "time.NewTicker", "fmt.Print", "fmt.Printf", "fmt.Println",
}
