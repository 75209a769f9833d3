package cuda

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// Sample is what a device or MIG device does at a moment.
type Sample struct {
	UUID string `json:"uuid"`
	// Parent is the GPU of a MIG device, else "". Power, temperature, clocks and
	// reasons are then the whole GPU's: instances have none of their own.
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

// utilization is the share, in percent, of the last sampling period of the
// driver (1/6 to 1 s) in which a kernel ran, and in which memory was accessed. It
// says nothing of how much of the GPU a kernel filled.
type utilization struct {
	GPU    int `json:"gpu_percent"`
	Memory int `json:"memory_percent"`
}

// Sample reads a device or MIG device by its UUID. It makes a fixed number of
// calls, 14 at most, and keeps nothing. A reading that the device cannot report is
// unknown; the error is of the whole device, as ErrLost.
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

func number(n uint32) int { return int(n) }

func watts(milliwatts uint32) float64 { return float64(milliwatts) / 1000 }

// of gives a call its argument.
func of[A, T any](call func(A) (T, nvml.Return), arg A) func() (T, nvml.Return) {
	return func() (T, nvml.Return) { return call(arg) }
}

// reasons are why the clocks of a GPU are not at their highest, in words: a list with
// commas, or "none".
type reasons string

type reason struct {
	bit   uint64
	slows bool // takes speed away under load, so that measured times lie
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

// reasonsOf puts NVML's bits into words. A bit of a later driver has its number only.
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

// Throttled reports whether heat or power takes speed away, so that times
// measured now are not the ones of a GPU at ease.
func (r reasons) Throttled() bool {
	return slices.ContainsFunc(reasonTable, func(e reason) bool { return e.slows && strings.Contains(string(r), e.words) })
}

// clockReasons asks by the name of the call that the driver has: it was renamed
// in version 535.
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
