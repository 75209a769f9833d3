// Package daemon runs overlapd. A [Daemon] starts and stops, in a fixed order, what the
// packages below provide: the devices and the loop that schedules them (daemon/loop), the
// state file, and the endpoints for HTTP (daemon/http) and gRPC (daemon/rpc), which share
// the path of a query (daemon/query). It also reloads the configuration (daemon/config) and
// reports to a service manager ([Manager]).
//
// The commands of overlapd create a Daemon with [New] and run it. Other commands use
// [State] to read measurements while no daemon runs.
package daemon
