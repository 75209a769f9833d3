package cuda

import (
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// Sample is what a device or MIG device does at a moment.
type Sample struct {
	UUID string `json:"uuid"`
	// Parent is the GPU of a MIG device, else "". Power, temperature, clocks and
	// reasons are then the whole GPU's: instances have none of their own.
	Parent string `json:"parent,omitempty"`

	Utilization  Reading[Utilization] `json:"utilization"`
	Memory       Reading[Memory]      `json:"memory"`
	Power        Reading[float64]     `json:"power_watts"`
	PowerLimit   Reading[float64]     `json:"power_limit_watts"`
	Temperature  Reading[int]         `json:"temperature_celsius"`
	SMClock      Reading[int]         `json:"sm_clock_mhz"`
	MaxSMClock   Reading[int]         `json:"max_sm_clock_mhz"`
	MemoryClock  Reading[int]         `json:"memory_clock_mhz"`
	ClockReasons Reading[Reasons]     `json:"clock_reasons"`
	Processes    Reading[[]Process]   `json:"processes"`
}

// Utilization is the share, in percent, of the last sampling period of the
// driver (1/6 to 1 s) in which a kernel ran, and in which memory was accessed. It
// says nothing of how much of the GPU a kernel filled.
type Utilization struct {
	GPU    int `json:"gpu_percent"`
	Memory int `json:"memory_percent"`
}

// Sample reads a device or MIG device by its UUID. It makes a fixed number of
// calls, 14 at most, and keeps nothing. A reading that the device cannot tell is
// unknown; the error is of the whole device, as ErrLost.
func (h *Host) Sample(uuid string) (Sample, error) {
	done, err := h.use()
	if err != nil {
		return Sample{}, err
	}
	defer done()
	handle, err := h.handle(uuid)
	if err != nil {
		return Sample{}, err
	}
	s := Sample{UUID: uuid}
	whole, err := s.parent(handle)
	if err != nil {
		return Sample{}, err
	}
	s.Memory = memory(handle, uuid)
	s.Processes = h.processes(handle, uuid)
	s.readUtilization(handle)
	s.readPower(whole)
	s.readClocks(whole)
	s.ClockReasons = h.clockReasons(whole, uuid)
	return s, s.fault()
}

// parent returns the GPU that a handle belongs to, itself for a whole one.
func (s *Sample) parent(handle nvml.Device) (nvml.Device, error) {
	if !strings.HasPrefix(s.UUID, "MIG-") {
		return handle, nil
	}
	whole, code := handle.GetDeviceHandleFromMigDeviceHandle()
	if err := check(code, "nvmlDeviceGetDeviceHandleFromMigDeviceHandle", s.UUID); err != nil {
		return nil, err
	}
	s.Parent, code = whole.GetUUID()
	return whole, check(code, "nvmlDeviceGetUUID", "the GPU of "+s.UUID)
}

func (s *Sample) readUtilization(handle nvml.Device) {
	rates, code := handle.GetUtilizationRates()
	s.Utilization = convert(read(rates, code, "nvmlDeviceGetUtilizationRates", s.UUID), func(u nvml.Utilization) Utilization {
		return Utilization{GPU: int(u.Gpu), Memory: int(u.Memory)}
	})
}

func (s *Sample) readPower(whole nvml.Device) {
	power, code := whole.GetPowerUsage()
	s.Power = convert(read(power, code, "nvmlDeviceGetPowerUsage", s.UUID), watts)
	limit, code := whole.GetEnforcedPowerLimit()
	s.PowerLimit = convert(read(limit, code, "nvmlDeviceGetEnforcedPowerLimit", s.UUID), watts)
	celsius, code := whole.GetTemperature(nvml.TEMPERATURE_GPU)
	s.Temperature = convert(read(celsius, code, "nvmlDeviceGetTemperature", s.UUID), number)
}

func (s *Sample) readClocks(whole nvml.Device) {
	clock, code := whole.GetClockInfo(nvml.CLOCK_SM)
	s.SMClock = convert(read(clock, code, "nvmlDeviceGetClockInfo", s.UUID), number)
	clock, code = whole.GetMaxClockInfo(nvml.CLOCK_SM)
	s.MaxSMClock = convert(read(clock, code, "nvmlDeviceGetMaxClockInfo", s.UUID), number)
	clock, code = whole.GetClockInfo(nvml.CLOCK_MEM)
	s.MemoryClock = convert(read(clock, code, "nvmlDeviceGetClockInfo", s.UUID), number)
}

// fault returns the first reading's error that concerns the whole device.
func (s *Sample) fault() error {
	for _, err := range []error{s.Memory.Err, s.Processes.Err, s.Utilization.Err, s.Power.Err, s.SMClock.Err, s.ClockReasons.Err} {
		if fatal(err) != nil {
			return err
		}
	}
	return nil
}

func number(n uint32) int { return int(n) }
