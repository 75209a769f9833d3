// Package conformance compares cut execution with ONNX Runtime itself: every
// model of a folder that ONNX Runtime runs correctly must give the same
// outputs when it is cut at every node. [Run] leads child processes through
// the models, since a model may crash the runtime; [Child] is what they do.
package conformance
