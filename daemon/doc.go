// Package daemon is the running service: it starts and stops, in one order, what
// the packages below it do, and reloads the configuration (daemon/config). Clients
// come by HTTP (daemon/http) or gRPC (daemon/rpc), which share what happens to a
// query (daemon/query). The commands of overlapd make a [Daemon] and run it.
package daemon
