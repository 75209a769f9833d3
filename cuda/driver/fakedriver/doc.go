// Package fakedriver is a CUDA driver without a GPU, for tests of whoever calls
// one: [Build] compiles libcuda.so.1 and a [Driver] has its page of words, which
// tell how it behaves and what happened. No program links it.
package fakedriver
