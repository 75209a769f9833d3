// Package models holds the vocabulary that all packages of overlapd share: [Model],
// [Operator], [Service], [Query], [Span] and [Group]. It also reads ONNX files: [Open]
// returns a [File], whose [File.Parts] can be assembled into new models. The subpackage zoo
// builds the models that overlapd ships. All packages may import models, and it imports none
// of them.
//
// The parser works on the protobuf wire format, without generated code. Every count and size
// in a file is bounded by a limit, because the file may come from an untrusted source.
//
// Nothing here runs a model. A [File] refers to the bytes it was parsed from and never copies
// a weight, so those bytes must not change while the File is in use.
package models
