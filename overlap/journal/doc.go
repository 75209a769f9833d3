// Package journal writes down what a scheduler was told and what it decided,
// and makes the same decisions again from that.
package journal
