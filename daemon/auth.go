package daemon

import (
	"net/http"
	"os"
	"slices"

	"github.com/valyala/fasthttp"

	"github.com/overlapd/overlapd/daemon/access"
	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/daemon/query"
)

var (
	errNoToken = &query.Error{Status: http.StatusUnauthorized, Reason: query.ReasonUnauthorized,
		Message: "this daemon wants a token: send the header Authorization: Bearer TOKEN, with a token of its access.token_file"}
	errWrongToken = &query.Error{Status: http.StatusUnauthorized, Reason: query.ReasonUnauthorized,
		Message: "the token of this request is not one of the daemon's: it may have been replaced in access.token_file"}
)

// challenge is what an answer without a token's right says of itself (RFC 6750).
const challenge = `Bearer realm="overlapd"`

// decide finds what a request asks for, if whoever sent it may ask. Every
// request passes here before anything of it is done, so that there is one place
// where tokens are looked at and no path around it.
func (e *Endpoint) decide(ctx *fasthttp.RequestCtx) (route, *query.Error) {
	if err := e.guard(ctx); err != nil {
		return route{}, err
	}
	r, err := e.route(ctx)
	if e.open(r.kind, err) {
		return r, err
	}
	sent := ctx.Request.Header.Peek(fasthttp.HeaderAuthorization)
	switch {
	case e.access.Allows(sent):
		return r, err
	case len(sent) == 0:
		return r, errNoToken
	}
	return r, errWrongToken
}

// open reports whether a route needs no token: health, for probes, and the page
// of the dashboard, which holds nothing of the daemon's and asks for a token
// itself. What is at no path needs one, so that nobody learns which paths are.
func (e *Endpoint) open(kind routeKind, err *query.Error) bool {
	switch {
	case err != nil && err.Status == http.StatusNotFound:
		return false
	case kind == routeLive, kind == routeReady, kind == routeDashboard:
		return true
	}
	return kind == routeMetrics && e.openMetrics
}

// openAccess reads who may ask, and tells what is unsafe about it.
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

func accessOptions(c *config.Config, changed func(error)) access.Options {
	return access.Options{
		TokenFile: c.Access.TokenFile, Cert: c.TLS.Cert, Key: c.TLS.Key, ClientCA: c.TLS.ClientCA,
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
