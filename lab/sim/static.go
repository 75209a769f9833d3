package sim

import (
	"errors"
	"fmt"

	"github.com/overlapd/overlapd/executor/emulated/device"
)

// staticPolicy is the policy that gives each service a share of the device.
const staticPolicy = "static"

// divisible is a device that can be divided, such as a *device.Model.
type divisible interface {
	InShare(percent int) (*device.Model, error)
}

// divide replaces the device of a valid scenario by one device for the share of each
// service. That is possible because work in different shares does not wait for each other.
func (sc *Scenario) divide() error {
	whole, ok := sc.Device.(divisible)
	if !ok {
		return errors.New("the policy static needs a device that can be divided, such as a device profile")
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
