package planning

import (
	"fmt"
	"os"

	"github.com/overlapd/overlapd/daemon/config"
)

// unplanned reads a configuration without the plan that it names: a new one may take its
// place, and the file need not be there yet.
func unplanned(path string) (c config.Config, err error) {
	data, err := os.ReadFile(path)
	if err == nil {
		c, err = config.Parse(path, data)
	}
	return c, err
}

// pooled reads a configuration with several devices.
func pooled(path string) (c config.Config, err error) {
	if c, err = unplanned(path); err == nil && len(c.Devices) == 0 {
		err = fmt.Errorf("%s has one device, which runs everything: a plan needs several [[device]] tables", path)
	}
	return c, err
}
