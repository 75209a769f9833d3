package daemon

import (
	"os"
	"slices"

	"github.com/overlapd/overlapd/daemon/access"
	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/daemon/http"
	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/daemon/rpc"
)

func accessOptions(c *config.Config, changed func(error)) access.Options {
	return access.Options{
		TokenFile: c.Access.TokenFile, Cert: c.TLS.Cert, Key: c.TLS.Key, CA: c.TLS.ClientCA,
		MinVersion: c.TLS.MinVersion, Changed: changed,
	}
}

// CheckAccess reads the files that say who may ask. It returns what is unsafe
// about them and about the addresses, each with a remedy.
func CheckAccess(c *config.Config) (warnings []string, err error) {
	a, err := access.Open(accessOptions(c, nil))
	if err != nil {
		return c.Exposures(), err
	}
	return slices.Concat(c.Exposures(), a.Warnings(), c.OpenFolders(-1)), nil // who asks need not be the daemon's user
}

// openEndpoints makes what serves clients.
func (d *Daemon) openEndpoints(c *config.Config, o *Options) (err error) {
	d.face = d.front()
	q := &query.Server{
		Host: d.face, Memory: query.NewBudget(c.Limits.MemoryBytes), Connections: query.NewBudget(int64(c.Limits.Connections)),
		Version: o.Version, Log: d.log,
	}
	if d.emulation != nil {
		q.Label = config.DeviceEmulated
	}
	if d.tracer, err = d.newTracer(o.Version); err != nil {
		return err
	}
	if d.tracer != nil {
		q.Tracer = d.tracer
	}
	h := http.Options{
		Queries: q, Access: d.access, Status: d.status, Timelines: d.face.Timelines, OpenMetrics: !c.Access.Metrics,
	}
	if c.Metrics {
		h.Metrics = d.newExporter(o.Version)
	}
	if d.endpoint, err = http.NewEndpoint(c.Limits, h); err != nil {
		return err
	}
	if d.remote != nil {
		d.rpc = rpc.New(q, c.Limits, d.access)
	}
	return nil
}

// openAccess reads who may ask, and logs what is unsafe about it.
func (d *Daemon) openAccess() (err error) {
	d.access, err = access.Open(accessOptions(&d.config, func(err error) {
		if err != nil {
			d.log.Error().Err(err).Msg("changed tokens or certificates cannot be used; those before stay in use")
			return
		}
		d.log.Info().Msg("changed tokens or certificates are in use now")
	}))
	if err != nil {
		return err
	}
	for _, w := range slices.Concat(d.config.Exposures(), d.access.Warnings(), d.config.OpenFolders(os.Geteuid())) {
		d.log.Warn().Msg(w)
	}
	return nil
}
