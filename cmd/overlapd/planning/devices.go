package planning

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/overlapd/overlapd/planning"
)

// manyMiB stands for memory without a limit. Solvers need a number, and a larger one costs them digits.
const manyMiB = 1e9

// maxDevices is how many devices a plan may have. It bounds what a mistyped number allocates.
const maxDevices = 100_000

// parseDevices reads --devices: so many devices with the memory given, or those that are named.
func parseDevices(given string, most float64) (devices []planning.Device, err error) {
	if n, err := strconv.Atoi(given); err == nil {
		if n < 1 || n > maxDevices {
			return nil, fmt.Errorf("--devices is %d: give a number from 1 to %d", n, maxDevices)
		}
		return numbered("device", n, most), nil
	}
	for _, text := range strings.Split(given, ",") {
		// Speed is relative, so that the first device may be the measure of the others.
		d := planning.Device{Speed: 1}
		var memory, speed string
		var sized, with bool
		d.Name, memory, sized = strings.Cut(text, "=")
		memory, speed, with = strings.Cut(memory, ":")
		if d.Memory, err = strconv.ParseFloat(memory, 64); with && err == nil {
			d.Speed, err = strconv.ParseFloat(speed, 64)
		}
		if err != nil || !sized || d.Name == "" {
			return nil, fmt.Errorf("--devices is %q: give a number, or NAME=MEMORY or NAME=MEMORY:SPEED, with the memory in MiB, as in a=40960,b=10240:0.25", text)
		}
		devices = append(devices, d)
	}
	return devices, nil
}

// numbered returns equal devices, or sub-clusters, which nobody has given names.
func numbered(name string, n int, memory float64) (devices []planning.Device) {
	for i := range n {
		devices = append(devices, planning.Device{Name: fmt.Sprintf("%s-%d", name, i+1), Memory: memory, Speed: 1})
	}
	return devices
}
