package daemon

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/overlapd/overlapd/daemon/statefile"
	"github.com/overlapd/overlapd/internal/fakes/fakemps"
	segworker "github.com/overlapd/overlapd/segments/worker"
)

// workerArgument makes this binary a worker that takes itself for one on a GPU.
const workerArgument = "worker"

// checkState makes this binary check a state file, as a child.
var checkState = []string{os.Args[0], "check-state"}

// fasthttp keeps one goroutine per process that rewrites the Date header, and
// one per server that notices the end of the server only when it wakes.
func TestMain(m *testing.M) {
	fakemps.Take()
	// Else each process that the race detector watches takes a second to end.
	os.Setenv("GORACE", "atexit_sleep_ms=0")
	if len(os.Args) == 2 && os.Args[1] == checkState[1] {
		statefile.RunCheck()
		return
	}
	if len(os.Args) == 2 && os.Args[1] == workerArgument {
		if err := segworker.Run(loadOnFakeGPU); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m,
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.updateServerDate.func1"),
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.(*workerPool).Start.func2"))
}
