// Package overlapd holds the tests of the repository as a whole: which package
// may import which, and how its files are kept. The daemon's main package is
// cmd/overlapd; the way of a query is told in ARCHITECTURE.md.
package overlapd
