// Package daemon is the running service. Its [Endpoint] speaks the Open
// Inference Protocol over HTTP, with Triton's binary tensor extension, and
// turns each request into a [Call] on a [Backend]. Its [config.Config] is read from
// one TOML file.
//
// # Answers that are not outputs
//
// Every error is a JSON object {"error": "...", "reason": "..."}. The reason
// is made for programs and stays the same between versions; the text is not.
// A 503 carries Retry-After in seconds.
//
// # Choices where the protocol leaves one
//
//   - The version of every model is "1".
//   - A dimension of a shape is at least 1: a tensor without elements is
//     refused.
//   - "data" may be flat, or nested exactly as the shape says.
//   - FP16 and BF16 have no JSON form, in either direction: use binary data.
//   - JSON has no NaN and no infinity. An output that holds one is answered
//     with 400 and the reason "not_json"; ask for binary output instead.
//   - Parameters that overlapd does not know are ignored. Those that Triton
//     reserves (sequence_*, triton_*, headers) and those that ask for what
//     overlapd does not do (classification, shared memory) are refused.
//   - A raw binary request (Inference-Header-Content-Length: 0) is refused.
//   - A client that shuts down its sending side has left: its query is
//     cancelled.
//   - A tensor of type BYTES lies in memory as the binary extension sends it:
//     for each element four bytes of length, little endian, and the bytes.
package daemon
