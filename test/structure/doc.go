// Package structure holds the tests of the repository as a whole: which package
// may import which, how large types and packages may become, and how files are
// kept. It reads the source itself, of every build tag, and builds nothing.
//
// "go test ./test/structure -run TestSize -v" prints the sizes of every package.
package structure
