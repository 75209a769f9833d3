package rpc

import (
	"context"
	"encoding/base64"
	"maps"
	"slices"
	"strconv"
	"time"

	orcadata "github.com/cncf/xds/go/xds/data/orca/v3"
	orcaservice "github.com/cncf/xds/go/xds/service/orca/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/overlapd/overlapd/daemon/query"
)

const (
	// loadTrailer has the report of a call (gRFC A51).
	loadTrailer = "endpoint-load-metrics-bin"

	// leastReportTime is the shortest time between two reports of a stream, and the time
	// where the client names none. The load is smoothed over about as long.
	leastReportTime = time.Second

	// reportDigits are those behind the point that a report has as text.
	reportDigits = 4
)

// EncodeLoad returns a load report (ORCA) in one of the forms of [query.HeaderLoadForm], with the
// name of the form before it as the header endpoint-load-metrics has it. The utilization is in
// cpu_utilization, which gRPC and Envoy go by where there is nothing else: application_utilization
// would go before named metrics with an older Envoy. Ended and missed count queries per second,
// and used is named_metrics, by the name of a service.
func EncodeLoad(form string, utilization, ended, missed float64, used map[string]float64) string {
	report := &orcadata.OrcaLoadReport{CpuUtilization: utilization, RpsFractional: ended, Eps: missed, NamedMetrics: used}
	switch form {
	case query.LoadText:
		b := []byte(form)
		add := func(name string, value float64) {
			b = append(append(b, name...), ':')
			b = append(strconv.AppendFloat(b, value, 'f', reportDigits, 64), ',')
		}
		add(" cpu_utilization", utilization)
		add("rps_fractional", ended)
		add("eps", missed)
		for _, name := range slices.Sorted(maps.Keys(used)) {
			add("named_metrics."+name, used[name])
		}
		return string(b[:len(b)-1])
	case query.LoadJSON:
		text, _ := protojson.Marshal(report) // it fails for text that is not UTF-8, which names of services are
		return form + " " + string(text)
	case query.LoadBinary:
		wire, _ := proto.Marshal(report)
		return form + " " + base64.StdEncoding.EncodeToString(wire)
	}
	wire, _ := proto.Marshal(report)
	return string(wire)
}

// reportLoad has a call end with the load of its service, if its client has asked for that.
func (a *answerer) reportLoad(ctx context.Context, service string) {
	if a.queries.Load == nil || len(metadata.ValueFromIncomingContext(ctx, query.HeaderLoadForm)) == 0 {
		return
	}
	if report := a.queries.Load(service, query.LoadMessage); report != "" {
		_ = grpc.SetTrailer(ctx, metadata.Pairs(loadTrailer, report)) // it fails only outside of a call
	}
}

// loads serves xds.service.orca.v3.OpenRcaService: reports of all services, out of band. The
// one of package google.golang.org/grpc/orca reports every 30 s at most, which is too old.
type loads struct {
	orcaservice.UnimplementedOpenRcaServiceServer
	queries *query.Server
}

// StreamCoreMetrics sends the load, now and as often as the client wants.
func (l loads) StreamCoreMetrics(r *orcaservice.OrcaLoadReportRequest, w grpc.ServerStreamingServer[orcadata.OrcaLoadReport]) error {
	tick := time.NewTicker(max(r.GetReportInterval().AsDuration(), leastReportTime))
	defer tick.Stop()
	for {
		report := new(orcadata.OrcaLoadReport)
		if err := proto.Unmarshal([]byte(l.queries.Load("", query.LoadMessage)), report); err != nil {
			return err
		}
		if err := w.Send(report); err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-w.Context().Done():
			return status.FromContextError(w.Context().Err()).Err()
		}
	}
}
