package sim

import (
	"errors"
	"fmt"

	"github.com/overlapd/overlapd/device"
)

// staticPolicy is the policy whose services each have a share of the device.
const staticPolicy = "static"

// divisible is a device of which a part can be had: a *device.Model.
type divisible interface {
	InShare(percent int) (*device.Model, error)
}

// divide puts a device for the share of each service in the place of the one device, since
// what runs in different shares waits for nobody. It is for a valid scenario.
func (sc *Scenario) divide() error {
	whole, ok := sc.Device.(divisible)
	if !ok {
		return errors.New("the policy static needs a device of which a share can be had, such as a device profile")
	}
	services := sc.Services
	sc.Services, sc.Devices, sc.Dispatch, sc.Kinds = nil, len(services), Pool, nil
	for i, s := range services {
		share, err := whole.InShare(s.Percentage)
		if err != nil {
			return fmt.Errorf("service %s: %w", s.Name, err)
		}
		s.On = []int{i}
		sc.Services, sc.Kinds = append(sc.Services, s), append(sc.Kinds, share)
	}
	return nil
}
