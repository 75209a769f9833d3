// Package load is the load generator behind "overlapd bench serve". [Run]
// asks a daemon for the metadata of some services, builds requests with
// seeded random tensors, sends them as [Options] say and returns a [Result].
//
// Open loop means that requests are due at times fixed beforehand. The latency
// of such a request counts from when it was due, also when every connection
// was busy at that time, so a stall of the daemon is seen by each request due
// during the stall and not only by the one that ran into it. Closed loop means
// connections that send their next request once they have the last answer.
//
// Each service has connections of its own. One service that hangs therefore
// does not delay the requests of another.
//
// The scenarios have the shape and the measure of those of MLPerf Inference.
// They follow none of its other rules (minimum duration, query count,
// accuracy, audit), so no result of this package is an MLPerf result.
package load
