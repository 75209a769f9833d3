// Package models holds the vocabulary of overlapd: Model, Operator, Service,
// Query, Batch, Span and Group. It also reads ONNX files, by wire format and
// with a limit on everything, and its subfolder zoo builds the models that
// overlapd ships. All packages may use it, and it imports none of them.
//
// Nothing in it runs a model. A [File] refers to the bytes it was parsed from
// and never copies a weight; those bytes must not change while it is in use.
package models
