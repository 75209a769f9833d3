// Package modelconfig is what overlapd reads of Triton's config.pbtxt, in Go. It
// is generated from model_config.proto, whose head says how.
package modelconfig
