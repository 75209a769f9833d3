package main

import (
	"fmt"
	"os"
	"runtime"
	"strings"
)

// cpuName names the processor, for results.
func cpuName() string {
	info, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return fmt.Sprintf("cpu, %d cores", runtime.NumCPU())
	}
	for line := range strings.Lines(string(info)) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == "model name" {
			return fmt.Sprintf("%s, %d cores", strings.TrimSpace(value), runtime.NumCPU())
		}
	}
	return fmt.Sprintf("cpu, %d cores", runtime.NumCPU())
}
