// Package metrics tells Prometheus what a daemon does. The scheduler goroutine
// writes plain numbers into a [Record] that only it touches; a scrape is given a
// [Snapshot] with a copy of it, and an [Exporter] turns that into text.
//
// # Names
//
// What Triton counts too has Triton's name and meaning (nv_inference_*,
// nv_gpu_*), so that its dashboards and perf_analyzer work unchanged; what is
// overlapd's own begins with overlapd_ and follows Prometheus's rules. The list
// is docs/metrics.md, which a test holds to the families of this package.
//
// # Cost
//
// The numbers of a scrape are of one moment. However often and from however many
// sides one scrapes, they are collected at most once in [Fresh]: in between
// everybody is given the same text. The scheduler goroutine is asked for a copy
// and never waits; if it does not answer, the latest copy is told, with its age.
//
// # Labels
//
// A label is one of a few names (see [Labels]), and its values come from the
// configuration or from lists in the program, never from a request. So the
// number of series is bounded by the number of services.
package metrics
