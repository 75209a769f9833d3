package rpc

import (
	"encoding/base64"
	"maps"
	"strings"
	"sync"
	"testing"

	orcadata "github.com/cncf/xds/go/xds/data/orca/v3"
	orcaservice "github.com/cncf/xds/go/xds/service/orca/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/overlapd/overlapd/daemon/query"
)

// reportOf decodes a report, as balancers do.
func reportOf(t *testing.T, text string, decode func([]byte, proto.Message) error) *orcadata.OrcaLoadReport {
	t.Helper()
	report := new(orcadata.OrcaLoadReport)
	if err := decode([]byte(text), report); err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	return report
}

func wantReport(t *testing.T, r *orcadata.OrcaLoadReport) {
	t.Helper()
	if r.CpuUtilization != 0.75 || r.RpsFractional != 120.5 || r.Eps != 2 || !maps.Equal(r.NamedMetrics, map[string]float64{"bert": 0.5, "resnet50": 1}) {
		t.Errorf("%v", r)
	}
}

// Each form has the same values, by the rules of its format.
func TestFormsOfLoadReports(t *testing.T) {
	encode := func(form string) string {
		return EncodeLoad(form, 0.75, 120.5, 2, map[string]float64{"resnet50": 1, "bert": 0.5})
	}
	const text = "TEXT cpu_utilization:0.7500,rps_fractional:120.5000,eps:2.0000,named_metrics.bert:0.5000,named_metrics.resnet50:1.0000"
	if got := encode(query.LoadText); got != text {
		t.Errorf("%s", got)
	}
	if got := EncodeLoad(query.LoadText, 0, 0, 1e-9, nil); got != "TEXT cpu_utilization:0.0000,rps_fractional:0.0000,eps:0.0000" {
		t.Errorf("%s", got)
	}
	json, ok := strings.CutPrefix(encode(query.LoadJSON), "JSON ")
	if !ok {
		t.Error("JSON has no prefix")
	}
	wantReport(t, reportOf(t, json, protojson.Unmarshal))
	binary, ok := strings.CutPrefix(encode(query.LoadBinary), "BIN ")
	wire, err := base64.StdEncoding.DecodeString(binary)
	if !ok || err != nil {
		t.Error(binary, err)
	}
	wantReport(t, reportOf(t, string(wire), proto.Unmarshal))
	wantReport(t, reportOf(t, encode(query.LoadMessage), proto.Unmarshal))
}

// A call ends with the load of its service if its client asks for that, also one that
// fails, and with none else.
func TestLoadOfACall(t *testing.T) {
	var mu sync.Mutex
	var asked []string
	f := &fake{load: func(service, form string) string {
		mu.Lock()
		defer mu.Unlock()
		asked = append(asked, service+form)
		return EncodeLoad(form, 0.75, 120.5, 2, map[string]float64{"resnet50": 1, "bert": 0.5})
	}}
	r := start(t, f, testLimits())
	request := typedRequest("1")
	var trailer metadata.MD
	if _, err := r.client.ModelInfer(r.context(), request, grpc.Trailer(&trailer)); err != nil || len(trailer.Get(loadTrailer)) != 0 {
		t.Errorf("%v, %v", trailer, err)
	}
	wants := metadata.AppendToOutgoingContext(r.context(), query.HeaderLoadForm, "bin")
	for _, fails := range []bool{false, true} {
		if fails {
			f.fail(query.ErrQueueFull)
		}
		trailer = nil
		_, err := r.client.ModelInfer(wants, request, grpc.Trailer(&trailer))
		if reports := trailer.Get(loadTrailer); (err != nil) != fails || len(reports) != 1 {
			t.Errorf("%v, %v", trailer, err)
		} else {
			wantReport(t, reportOf(t, reports[0], proto.Unmarshal))
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if len(asked) != 2 || asked[0] != request.ModelName {
		t.Errorf("asked for %q", asked)
	}
}

// Out of band, the load of all services comes again and again, until the daemon stops.
func TestLoadOutOfBand(t *testing.T) {
	r := start(t, &fake{load: func(service, form string) string {
		if service != "" {
			t.Errorf("asked for %q", service)
		}
		return EncodeLoad(form, 0.75, 120.5, 2, map[string]float64{"resnet50": 1, "bert": 0.5})
	}}, testLimits())
	stream, err := orcaservice.NewOpenRcaServiceClient(r.conn).StreamCoreMetrics(r.context(), &orcaservice.OrcaLoadReportRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		report, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		wantReport(t, report)
	}
	if err := r.stop(patience); err != nil {
		t.Error(err)
	}
	_, err = stream.Recv()
	wants(t, "after the daemon stopped", err, codes.Unavailable, "stopping")
}
