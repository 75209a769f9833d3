// Package triton makes a configuration of overlapd out of a model repository of
// Triton's inference server: a folder with a folder for each model, in which
// config.pbtxt says how the model is served and numbered folders hold its versions.
//
// [Read] is all of it. What a repository asks for and overlapd does not have is
// reported by name: a model that needs it is left out, and else it is a note. What
// is wrong by Triton's own rules is an error.
package triton
