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
	// loadTrailer is the trailer with the load report of a call (gRFC A51).
	loadTrailer = "endpoint-load-metrics-bin"

	// leastReportTime is the minimum interval between two reports of a stream, and the
	// default. The load is averaged over about as long, so more frequent reports would not
	// be more precise.
	leastReportTime = time.Second

	// reportDigits is the number of decimals in a report as text.
	reportDigits = 4
)

// EncodeLoad returns an ORCA load report in one of the forms of [query.HeaderLoadForm]. A
// text form begins with its name, as the header endpoint-load-metrics requires.
//
// The utilization goes into cpu_utilization, which gRPC and Envoy use when no other is set;
// application_utilization would override named metrics in older versions of Envoy. ended
// and missed are queries per second. used becomes named_metrics, by service.
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
		text, _ := protojson.Marshal(report) // fails only for invalid UTF-8, which names of services cannot be
		return form + " " + string(text)
	case query.LoadBinary:
		wire, _ := proto.Marshal(report)
		return form + " " + base64.StdEncoding.EncodeToString(wire)
	}
	wire, _ := proto.Marshal(report)
	return string(wire)
}

// reportLoad adds the load of a service to the trailer of a call if the client asked for
// it.
func (a *answerer) reportLoad(ctx context.Context, service string) {
	if a.queries.Load == nil || len(metadata.ValueFromIncomingContext(ctx, query.HeaderLoadForm)) == 0 {
		return
	}
	if report := a.queries.Load(service, query.LoadMessage); report != "" {
		_ = grpc.SetTrailer(ctx, metadata.Pairs(loadTrailer, report)) // fails only outside of a call
	}
}

// loads implements xds.service.orca.v3.OpenRcaService, which reports the load of all
// services out of band. The implementation in google.golang.org/grpc/orca is not used: it
// reports every 30s at most, which is too old for balancing.
type loads struct {
	orcaservice.UnimplementedOpenRcaServiceServer
	queries *query.Server
}

// StreamCoreMetrics sends the load now and then at the interval that the client requests,
// at least leastReportTime.
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
