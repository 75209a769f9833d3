package main

import (
	"fmt"
	"os"
	"runtime"
	"strings"
)

// cpuName names the processor, for results.
func cpuName() string {
	info, _ := os.ReadFile("/proc/cpuinfo") // without it, there is no name
	return processorName(string(info))
}

// processorName takes the name out of /proc/cpuinfo.
func processorName(info string) string {
	name := "cpu"
	for line := range strings.Lines(info) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == "model name" {
			name = strings.TrimSpace(value)
			break
		}
	}
	return fmt.Sprintf("%s, %d cores", name, runtime.NumCPU())
}
