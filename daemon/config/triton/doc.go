// Package triton converts a model repository of Triton Inference Server to a configuration
// of overlapd. A repository is a folder with a folder for each model, in which config.pbtxt
// says how the model is served and numbered folders hold its versions.
//
// [Read] is the only entry point. A feature that overlapd does not have is reported by
// name: a model that needs it is left out, and otherwise there is a note. What violates
// Triton's own rules is an error.
package triton
