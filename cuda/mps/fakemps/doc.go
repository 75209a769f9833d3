// Package fakemps is NVIDIA's MPS as a test sees it, without a GPU: a control
// program that is daemon and console in one, servers, and clients.
//
// A test binary that calls [Take] first thing in TestMain is the control
// program when it is started under that name, and [Install] makes the name.
// The fake binds a SOCK_SEQPACKET socket "control" in the pipe directory, as
// the real one does; what goes through it is the fake's own. Console, log
// lines and messages are as NVIDIA documents them or as logs in public show
// them. What a daemon does wrong is told it by [Behave].
//
// By hand: go build ./cuda/mps/fakemps/nvidia-cuda-mps-control makes a program
// to put first in PATH.
package fakemps
