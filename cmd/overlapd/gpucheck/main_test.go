package gpucheck

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/overlapd/overlapd/cmd/overlapd/cutcost"
	"github.com/overlapd/overlapd/cuda/mps/fakemps"
	"github.com/overlapd/overlapd/segments"
)

// roleVariable makes the test binary the overlapd that a check starts. Its value
// says what is wrong with it.
const roleVariable = "OVERLAPD_GPUCHECK_TEST"

// What may be wrong.
const (
	healthy    = "healthy"
	noTraining = "no training"
	noServing  = "no serving"
	noProbes   = "no probes"
	oneApart   = "one apart"
	slow       = "slow"
)

func TestMain(m *testing.M) {
	os.Setenv("GORACE", "atexit_sleep_ms=0") // else each process that the race detector watches takes a second to end
	fakemps.Take()
	role := os.Getenv(roleVariable)
	if role == "" {
		goleak.VerifyTestMain(m)
		return
	}
	if err := act(role, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "overlapd:", err)
		os.Exit(1)
	}
}

// act is overlapd, with made-up measurements.
func act(role string, args []string) error {
	if role == slow {
		time.Sleep(time.Minute)
	}
	switch args[0] {
	case "bench":
		return actProbe(role)
	case "gpu-check":
		return actClient(os.Stdin, os.Stdout)
	case "worker":
		return segments.RunWorker(segments.LoadONNX)
	case "profile":
		state := filepath.Join(filepath.Dir(args[2]), stateFile)
		if err := os.WriteFile(state, []byte("measured"), 0o644); err != nil {
			return err
		}
		if err := os.Mkdir(filepath.Join(filepath.Dir(args[2]), "optimized"), 0o755); err != nil {
			return err
		}
		fmt.Println(`{"measured": 40, "seconds": 1.5, "drift_percent": -0.5}`)
	case "train":
		if role == noTraining {
			return fmt.Errorf("too few groups")
		}
		fmt.Println(`{"rows": 30, "seconds": 0.5, "mape_test": 4.25}`)
	case "serve":
		if role == noServing {
			fmt.Fprintln(os.Stderr, `{"level":"error","message":"a worker is lost","error":"no such model"}`)
			return fmt.Errorf("nothing to serve")
		}
		return actServe(args)
	}
	return nil
}

func actProbe(role string) error {
	var spec cutcost.ProbeSpec
	if err := json.NewDecoder(os.Stdin).Decode(&spec); err != nil {
		return err
	}
	if role == noProbes {
		return fmt.Errorf("%s cannot be loaded", spec.Path)
	}
	r := cutcost.ProbeResult{Segments: 40, Rounds: 15, WholeMS: 2, CutMS: 2.2, LoadMS: 80, RSSBytes: 100 << 20}
	if spec.Target > 0 {
		r.Segments, r.CutMS = spec.Target, 2.04
	}
	if spec.Mode == cutcost.ModeApart {
		r.Deviation = &cutcost.Deviation{Outputs: 1, Elements: 10, Largest: 3, MaxAbs: 3e-4, RelToMax: 1e-4}
		if role == oneApart && strings.Contains(spec.Path, "mlp") {
			r.Deviation.RelToMax = 0.5
		}
	}
	return json.NewEncoder(os.Stdout).Encode(r)
}

// actServe answers what the load generator asks. The policy fcfs refuses every
// query.
func actServe(args []string) error {
	policy := args[len(args)-1]
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasSuffix(r.URL.Path, "/infer") && policy == "fcfs":
			w.WriteHeader(http.StatusServiceUnavailable)
		case strings.HasSuffix(r.URL.Path, "/infer"):
			fmt.Fprint(w, `{"model_name":"m","outputs":[{"name":"y","datatype":"FP32","shape":[1],"data":[1]}]}`)
		case strings.HasSuffix(r.URL.Path, "/config"):
			fmt.Fprint(w, `{"parameters":{"qos_target_us":{"string_value":"20000"}}}`)
		case strings.HasPrefix(r.URL.Path, "/v2/models/"):
			fmt.Fprint(w, `{"name":"m","inputs":[{"name":"x","datatype":"FP32","shape":[-1,2]}],"outputs":[{"name":"y","datatype":"FP32","shape":[-1]}]}`)
		default:
			fmt.Fprint(w, `{"name":"overlapd","version":"1","extensions":["binary_tensor_data"]}`)
		}
	})}
	fmt.Fprintf(os.Stderr, "{\"level\":\"info\",\"message\":\"listening\",\"address\":%q}\n", listener.Addr())
	fmt.Fprintln(os.Stderr, `{"level":"info","message":"all services are ready"}`)
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, unix.SIGTERM)
	go func() {
		<-stop
		_ = server.Close()
	}()
	if err := server.Serve(listener); err != http.ErrServerClosed {
		return err
	}
	return nil
}
