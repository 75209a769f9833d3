package cuda

import (
	"fmt"
	"slices"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// Reasons are why the clocks of a GPU are not at their highest: a set of the
// bits that NVML names.
type Reasons uint64

type reason struct {
	bit   Reasons
	slows bool // takes speed away under load, so that measured times lie
	words string
}

// reasonTable is in the order in which they are told.
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

// Words returns the reasons one by one; a bit of a later driver is told by its
// number.
func (r Reasons) Words() (words []string) {
	for _, e := range reasonTable {
		if r&e.bit != 0 {
			words = append(words, e.words)
			r &^= e.bit
		}
	}
	if r != 0 {
		words = append(words, fmt.Sprintf("reason %#x", uint64(r)))
	}
	return words
}

// String returns the reasons as a list, or "none".
func (r Reasons) String() string {
	if r == 0 {
		return "none"
	}
	return strings.Join(r.Words(), ", ")
}

// Throttled reports whether heat or power takes speed away, so that times
// measured now are not the ones of a GPU at ease.
func (r Reasons) Throttled() bool {
	for _, e := range reasonTable {
		if e.slows && r&e.bit != 0 {
			return true
		}
	}
	return false
}

// MarshalText writes the words.
func (r Reasons) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (r *Reasons) UnmarshalText(text []byte) error {
	*r = 0
	if string(text) == Reasons(0).String() {
		return nil
	}
	for _, words := range strings.Split(string(text), ", ") {
		var number uint64
		i := slices.IndexFunc(reasonTable, func(e reason) bool { return e.words == words })
		switch _, err := fmt.Sscanf(words, "reason %v", &number); {
		case i >= 0:
			*r |= reasonTable[i].bit
		case err == nil:
			*r |= Reasons(number)
		default:
			return fmt.Errorf("clock reason %q is not known", words)
		}
	}
	return nil
}

// clockReasons asks by the name of the call that the driver has: it was renamed
// in version 535.
func (h *Host) clockReasons(handle nvml.Device, subject string) Reading[Reasons] {
	call, ask := symbolEventReasons, handle.GetCurrentClocksEventReasons
	if !h.symbols[call] {
		call, ask = symbolThrottleReasons, handle.GetCurrentClocksThrottleReasons
	}
	if err := h.missing(call); err != nil {
		return unknown[Reasons](err)
	}
	bits, code := ask()
	return convert(read(bits, code, call, subject), func(bits uint64) Reasons { return Reasons(bits) })
}
