package cuda

import (
	"fmt"
	"strings"
)

// Types that only tests of this package name.
type (
	Fault       = fault
	Utilization = utilization
	Version     = version
)

// FaultTable returns the answers of NVML, what they mean and the remedies as a
// Markdown table, as the documentation has it.
func FaultTable() string {
	var b strings.Builder
	b.WriteString("| NVML says | it means | what to do |\n|---|---|---|\n")
	for _, m := range meanings {
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", m.name, m.means, m.remedy)
	}
	return b.String()
}
