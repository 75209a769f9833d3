package test

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"
	_ "google.golang.org/grpc/balancer/weightedroundrobin" // by load reports
	"google.golang.org/grpc/credentials/insecure"
	_ "google.golang.org/grpc/health" // whether a daemon is ready
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"

	"github.com/overlapd/overlapd/daemon/rpc/inference"
)

const (
	roundRobin = `"round_robin": {}`

	// byReports balances by load reports. What a daemon says counts after a second, not ten.
	byReports = `"weighted_round_robin": {"enableOobLoadReport": true, "oobReportingPeriod": "1s", "blackoutPeriod": "1s"}`
)

// balanced returns a client that spreads its calls over addresses by a policy of gRPC, and
// leaves those that are not ready.
func balanced(t testing.TB, policy string, addresses []string) inference.GRPCInferenceServiceClient {
	t.Helper()
	var state resolver.State
	for _, a := range addresses {
		state.Endpoints = append(state.Endpoints, resolver.Endpoint{Addresses: []resolver.Address{{Addr: a}}})
	}
	pods := manual.NewBuilderWithScheme("pods")
	pods.InitialState(state)
	service := fmt.Sprintf(`{"loadBalancingConfig": [{%s}], "healthCheckConfig": {"serviceName": ""}}`, policy)
	c, err := grpc.NewClient("pods:///overlapd", grpc.WithResolvers(pods), grpc.WithDefaultServiceConfig(service), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return inference.NewGRPCInferenceServiceClient(c)
}

// envoyVariable names Envoy, which is looked for in PATH else. scripts/fetch-envoy gets it.
const envoyVariable = "OVERLAPD_ENVOY"

// Policies of Envoy.
const (
	envoyRoundRobin   = "round_robin.v3.RoundRobin"
	envoyLeastRequest = "least_request.v3.LeastRequest"
	envoyByReports    = "client_side_weighted_round_robin.v3.ClientSideWeightedRoundRobin, enable_oob_load_report: true, " +
		"oob_reporting_period: 1s, blackout_period: 1s"
)

// grpcAddresses returns where daemons listen.
func grpcAddresses(pods []*process) (list []string) {
	for _, p := range pods {
		list = append(list, p.grpcAddress())
	}
	return list
}

// throughEnvoy starts an Envoy that spreads calls over addresses, and returns a client of it.
func throughEnvoy(t testing.TB, policy string, addresses []string) inference.GRPCInferenceServiceClient {
	t.Helper()
	program := os.Getenv(envoyVariable)
	if program == "" {
		var err error
		if program, err = exec.LookPath("envoy"); err != nil {
			t.Skipf("no Envoy: scripts/fetch-envoy gets one; put it into PATH, or name it in %s", envoyVariable)
		}
	}
	text, err := os.ReadFile(filepath.Join("testdata", "envoy.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var endpoints []string
	for _, a := range addresses {
		host, port, err := net.SplitHostPort(a)
		if err != nil {
			t.Fatal(err)
		}
		endpoints = append(endpoints, fmt.Sprintf("{endpoint: {address: {socket_address: {address: %s, port_value: %s}}}}", host, port))
	}
	config := strings.NewReplacer("POLICY", policy, "ENDPOINTS", strings.Join(endpoints, ", ")).Replace(string(text))
	admin := filepath.Join(t.TempDir(), "admin")
	var log strings.Builder
	cmd := exec.Command(program, "--config-path", write(t, "envoy.yaml", []byte(config)), "--admin-address-path", admin,
		"--use-dynamic-base-id", "--concurrency", "1", "--log-level", "warning")
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		if cmd.Wait(); t.Failed() {
			t.Log(log.String())
		}
	})
	p := &process{t: t, exited: make(chan struct{})} // for its waits
	var listener string
	p.eventually("Envoy to listen", func() bool {
		at, _ := os.ReadFile(admin)
		p.address = string(at)
		status, body := p.get("/listeners")
		_, listener, _ = strings.Cut(strings.TrimSpace(string(body)), "::") // name::address
		return status == 200 && listener != ""
	})
	return balanced(t, `"pick_first": {}`, []string{listener}) // its readiness is no daemon's
}

// slower writes a file of docs/examples whose operators take longer by a factor.
func slower(t testing.TB, name string, factor float64) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "docs", "examples", name))
	if err != nil {
		t.Fatal(err)
	}
	var file any
	if err := json.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	var scale func(v any, times bool)
	scale = func(v any, times bool) {
		switch v := v.(type) {
		case map[string]any:
			for key := range v {
				scale(v[key], key == "micros" || key == "work")
			}
		case []any:
			for i := range v {
				if number, ok := v[i].(float64); ok && times {
					v[i] = number * factor
				}
				scale(v[i], times)
			}
		}
	}
	scale(file, false)
	if text, err = json.Marshal(file); err != nil {
		t.Fatal(err)
	}
	return write(t, name, text)
}
