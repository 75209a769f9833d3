package executor

import (
	"slices"
	"strings"
)

// withheld are the variables that a worker does not get, by how their names
// begin. It parses models that others wrote, and needs neither what names or
// holds secrets nor a way to speak for the daemon.
var withheld = []string{
	"OTEL_EXPORTER_OTLP_", // headers with credentials, and the collector
	"OVERLAPD_TOKEN_FILE=",
	"CREDENTIALS_DIRECTORY=", // of systemd
	"NOTIFY_SOCKET=",
	"WATCHDOG_",
	"LISTEN_", // sockets that systemd passes
}

// withoutSecrets returns an environment without what a worker does not get.
func withoutSecrets(env []string) []string {
	return slices.DeleteFunc(slices.Clone(env), func(variable string) bool {
		return slices.ContainsFunc(withheld, func(begin string) bool { return strings.HasPrefix(variable, begin) })
	})
}
