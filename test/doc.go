// Package test holds the tests of the whole: a real daemon with real worker
// processes, real sockets and the real engine, each test a scenario. It has no
// code of its own.
//
// The tests build the binary once and are skipped where ONNX Runtime is not
// found. Most run side by side, each with daemons of its own. After each of them
// the daemon and all of its workers must be gone.
package test
