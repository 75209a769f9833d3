package cuda

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// Sample is the state of a device or MIG device at one moment.
type Sample struct {
	UUID string `json:"uuid"`
	// Parent is the UUID of the GPU of a MIG device, else "". Power, temperature,
	// clocks and reasons are those of the whole GPU, because instances have none of
	// their own.
	Parent string `json:"parent,omitempty"`

	Utilization  Reading[utilization] `json:"utilization"`
	Memory       Reading[memory]      `json:"memory"`
	Power        Reading[float64]     `json:"power_watts"`
	PowerLimit   Reading[float64]     `json:"power_limit_watts"`
	Temperature  Reading[int]         `json:"temperature_celsius"`
	SMClock      Reading[int]         `json:"sm_clock_mhz"`
	MaxSMClock   Reading[int]         `json:"max_sm_clock_mhz"`
	MemoryClock  Reading[int]         `json:"memory_clock_mhz"`
	ClockReasons Reading[reasons]     `json:"clock_reasons"`
	Processes    Reading[[]Process]   `json:"processes"`
}

// utilization is the share, in percent, of the driver's last sampling period (1/6 to 1 s)
// during which a kernel ran, and during which memory was accessed. It does not tell how
// much of the GPU the kernels occupied.
type utilization struct {
	GPU    int `json:"gpu_percent"`
	Memory int `json:"memory_percent"`
}

// Sample reads a device or MIG device by its UUID. It makes at most 14 calls and keeps
// no state. A reading that the device cannot report is unknown. The error concerns the
// whole device, such as ErrLost.
func (h *Host) Sample(uuid string) (s Sample, err error) {
	err = h.with(uuid, func(handle nvml.Device) error {
		s = Sample{UUID: uuid}
		whole, err := s.parent(handle)
		if err != nil {
			return err
		}
		s.Memory = readMemory(handle, uuid)
		s.Processes = h.processes(handle, uuid)
		s.Utilization = ask("nvmlDeviceGetUtilizationRates", uuid, handle.GetUtilizationRates, func(u nvml.Utilization) utilization {
			return utilization{GPU: int(u.Gpu), Memory: int(u.Memory)}
		})
		s.Power = ask("nvmlDeviceGetPowerUsage", uuid, whole.GetPowerUsage, watts)
		s.PowerLimit = ask("nvmlDeviceGetEnforcedPowerLimit", uuid, whole.GetEnforcedPowerLimit, watts)
		s.Temperature = ask("nvmlDeviceGetTemperature", uuid, of(whole.GetTemperature, nvml.TEMPERATURE_GPU), number)
		s.SMClock = ask("nvmlDeviceGetClockInfo", uuid, of(whole.GetClockInfo, nvml.CLOCK_SM), number)
		s.MaxSMClock = ask("nvmlDeviceGetMaxClockInfo", uuid, of(whole.GetMaxClockInfo, nvml.CLOCK_SM), number)
		s.MemoryClock = ask("nvmlDeviceGetClockInfo", uuid, of(whole.GetClockInfo, nvml.CLOCK_MEM), number)
		s.ClockReasons = h.clockReasons(whole, uuid)
		for _, err := range []error{s.Memory.Err, s.Processes.Err, s.Utilization.Err, s.Power.Err, s.SMClock.Err, s.ClockReasons.Err} {
			if fatal(err) != nil {
				return err
			}
		}
		return nil
	})
	return s, err
}

// parent returns the GPU that a handle belongs to, which is the handle itself unless it
// is a MIG device's.
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

func number(n uint32) int { return int(n) }

func watts(milliwatts uint32) float64 { return float64(milliwatts) / 1000 }

// of binds the argument of a call.
func of[A, T any](call func(A) (T, nvml.Return), arg A) func() (T, nvml.Return) {
	return func() (T, nvml.Return) { return call(arg) }
}

// reasons says why the clocks of a GPU are not at their maximum: a comma-separated list,
// or "none".
type reasons string

type reason struct {
	bit uint64

	// slows is set if the reason reduces the speed under load, so that latencies
	// measured meanwhile do not represent the GPU.
	slows bool
	words string
}

// reasonTable is in the order in which reasons are listed.
var reasonTable = []reason{
	{nvml.ClocksThrottleReasonHwSlowdown, true, "hardware slowdown"},
	{nvml.ClocksThrottleReasonHwThermalSlowdown, true, "too hot (hardware)"},
	{nvml.ClocksThrottleReasonHwPowerBrakeSlowdown, true, "external power brake"},
	{nvml.ClocksEventReasonSwThermalSlowdown, true, "too hot (driver)"},
	{nvml.ClocksEventReasonSwPowerCap, true, "power limit"},
	{nvml.ClocksEventReasonSyncBoost, true, "synchronised with slower GPUs"},
	{nvml.ClocksEventReasonApplicationsClocksSetting, false, "clocks set by the administrator"},
	{nvml.ClocksEventReasonDisplayClockSetting, false, "clocks set by the display"},
	{nvml.ClocksEventReasonGpuIdle, false, "idle"},
}

// reasonsOf converts NVML's bits to words. A bit of a later driver is shown as a number.
func reasonsOf(bits uint64) reasons {
	var words []string
	for _, e := range reasonTable {
		if bits&e.bit != 0 {
			words = append(words, e.words)
			bits &^= e.bit
		}
	}
	if bits != 0 {
		words = append(words, fmt.Sprintf("reason %#x", bits))
	}
	return reasons(cmp.Or(strings.Join(words, ", "), "none"))
}

// Throttled reports whether heat or power limits reduce the speed, so that latencies
// measured now do not represent the GPU.
func (r reasons) Throttled() bool {
	return slices.ContainsFunc(reasonTable, func(e reason) bool { return e.slows && strings.Contains(string(r), e.words) })
}

// clockReasons uses whichever call the driver has, since it was renamed in version 535.
func (h *Host) clockReasons(handle nvml.Device, subject string) Reading[reasons] {
	call, get := symbolEventReasons, handle.GetCurrentClocksEventReasons
	if !h.symbols[call] {
		call, get = symbolThrottleReasons, handle.GetCurrentClocksThrottleReasons
	}
	if !h.symbols[call] {
		return Reading[reasons]{Err: &fault{Call: call, Code: nvml.ERROR_FUNCTION_NOT_FOUND}}
	}
	return ask(call, subject, get, reasonsOf)
}
