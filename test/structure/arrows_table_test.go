package structure

import (
	"fmt"
	"os"
	"strings"
	"sync"
)

// arrow tells which others of the module a package may import, and which its tests besides,
// which imports of owners are its own, and why it may import no more.
type arrow struct {
	pkg              string
	may, tests, owns []string
	why              string
}

// arrows returns the table of ARCHITECTURE.md, those at the bottom first.
var arrows = sync.OnceValue(func() (list []arrow) {
	inRoot()
	text, err := os.ReadFile("ARCHITECTURE.md")
	_, table, _ := strings.Cut(string(text), "<!-- imports -->\n")
	table, _, ended := strings.Cut(table, "\n<!-- /imports -->")
	rows := strings.Split(table, "\n")
	if !ended || len(rows) < 3 {
		panic(fmt.Sprint("ARCHITECTURE.md lacks its table of imports: ", err))
	}
	for _, row := range rows[2:] {
		cells := strings.Split(strings.Trim(row, "| "), " | ")
		if len(cells) != 5 {
			panic("ARCHITECTURE.md: not five cells: " + row)
		}
		names := func(cell int) []string {
			return strings.Fields(strings.NewReplacer("`", "", ",", "", "–", "").Replace(cells[cell]))
		}
		list = append(list, arrow{pkg: names(0)[0], may: names(1), tests: names(2), owns: names(3), why: cells[4]})
	}
	return list
})

// unreachable are packages that a package must not reach through any others
// either: what a process links counts as much as what a file imports.
var unreachable = []struct {
	from, to string
	why      string
}{
	{"daemon", "ort", "a model that crashes ONNX Runtime must end a worker, not the daemon"},
	{"executor", "ort", "a model that crashes ONNX Runtime must end a worker, not its parent"},
	{"daemon", "cuda/driver", "a context of CUDA in the daemon would take memory of the GPU and share the fate of its clients"},
	{"executor", "cuda/driver", "a context of CUDA is a worker's"},
	{"daemon/observe", "daemon/observe/metrics", "an event is plain memory; Prometheus is a listener's business"},
	{"daemon/observe", "daemon/observe/tracing/otlp", "an event is plain memory; OpenTelemetry belongs to the exporter"},
	{"daemon/loop", "daemon/http", "who decides knows no protocol"},
	{"daemon/loop", "daemon/rpc", "who decides knows no protocol"},
	{"daemon/loop", "daemon/observe/metrics", "who decides emits events; Prometheus is a listener's business"},
	{"daemon/loop", "daemon/observe/tracing/otlp", "who decides emits events; OpenTelemetry belongs to the exporter"},
	{"daemon/observe", "daemon/http", "who decides knows no protocol"},
	{"daemon/observe", "daemon/rpc", "who decides knows no protocol"},
	{"daemon/status", "daemon/observe/metrics", "a status is plain memory for any reader"},
	{"daemon/status", "daemon/observe/tracing/otlp", "a status is plain memory for any reader"},
}

// owner tells why imports that are not of the module belong to those packages that own them
// by the table, and to no others. The prefix stands for everything below it.
type owner struct{ prefix, why string }

// owners hold all that is not Go's own, and of that what not every package may import.
var owners = []owner{
	{"C", "cgo belongs to packages that call a C library, so that all others build and are checked without it"},
	{"unsafe", "memory outside Go is turned into slices in few places, the kernel is asked for a peer's groups in one, and generated code turns a text into bytes"},
	{"os/exec", "a package that starts a process must reap it"},
	{"syscall", "x/sys/unix has the same and more; only where the standard library's signatures name it"},
	{"log", "packages return errors and emit events; the daemon logs them with zerolog, and makes its lines of what libraries write"},

	{"google.golang.org/protobuf", "ONNX is read and written by wire format, where files and graphs are handled, gRPC carries messages, and Triton configures models by them"},
	{"google.golang.org/grpc/grpclog", "where libraries write lines is wiring"},
	{"google.golang.org/grpc", "gRPC ends at its server; nothing behind it knows of calls"},
	{"github.com/cncf/xds", "messages of load reports are made where gRPC sends them; all else hands in numbers"},
	{"google.golang.org/genproto/googleapis/rpc", "what a status carries besides its text is written where statuses are"},
	{"github.com/valyala/fasthttp", "HTTP ends at the endpoint; nothing behind it knows of requests"},
	{"github.com/klauspost/compress", "compilers of CUDA compress kernels with zstd and LZ4, which only what makes the GPU bundle reads; files of ours are gzip"},
	{"github.com/rs/zerolog", "the core emits events; only the daemon logs"},
	{"go.etcd.io/bbolt", "there is one state file, opened in one place; the daemon and training keep in it what was measured"},
	{"github.com/chewxy/math32", "networks are fitted in one package, in single precision; elsewhere math has the same"},
	{"gonum.org/v1/gonum", "linear algebra belongs to fitting, combinations to sampling, vectors and special functions to computing policies; serving a predictor or a policy is plain loops"},
	{"github.com/prometheus", "the core counts in plain numbers; only what answers a scrape speaks Prometheus"},
	{"go.opentelemetry.io/otel", "the daemon notes what becomes of a query in plain numbers; only what sends them to a collector speaks OpenTelemetry"},
	{"go.opentelemetry.io/proto/otlp", "what a collector is sent is read where tests have one"},
	{"github.com/pelletier/go-toml", "there is one configuration and one package that reads it"},
	{"github.com/agext/levenshtein", "words that are alike are found where keys are read; Cobra does so for commands"},
	{"github.com/NVIDIA/go-nvml", "NVML's answers become facts and sentences in one package"},
	{"charm.land", "only commands talk to a terminal"},
	{"github.com/spf13/cobra", "the command line is wiring"},
	{"github.com/spf13/pflag", "the command line is wiring"},
	{"github.com/coreos/go-systemd", "how overlapd is started is wiring"},
	{"golang.org/x/term", "only commands talk to a terminal"},
	{"github.com/HdrHistogram/hdrhistogram-go", "latencies are counted where load is made"},
	{"golang.org/x/time/rate", "what a worker says is passed on at a limited rate, and so are losses of spans"},
	{"golang.org/x/text", "text becomes numbers below text; to all others it is bytes"},
	{"github.com/clipperhouse/uax29", "text becomes numbers below text; to all others it is bytes"},
	{"golang.org/x/sys", "the scheduler and the predictor ask nothing of the system, and ort asks the system through C"},

	{"github.com/google/go-cmp", "it is made for tests, and panics"},
	{"github.com/rogpeppe/go-internal", "it is made for tests"},
	{"go.uber.org/goleak", "it is made for tests"},
	{"pgregory.net/rapid", "it is made for tests"},
	{"go.yaml.in/yaml", "tests read documents for other programs; the configuration is TOML"},
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
