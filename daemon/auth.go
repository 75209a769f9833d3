package daemon

import (
	"os"
	"slices"

	"github.com/overlapd/overlapd/daemon/access"
	"github.com/overlapd/overlapd/daemon/config"
)

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
