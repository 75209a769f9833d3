// Package conformance compares cut execution with ONNX Runtime itself, as Go tests:
// every model of a folder that ONNX Runtime runs correctly must give the same outputs
// when it is cut at every node, and when it is cut more coarsely.
//
// TestModels takes the folders of the flag -data or of OVERLAPD_ONNX_TESTDATA, one
// subtest for each model; "make conformance" names those of Debian's libonnx-testdata.
// Without folders it is skipped, and TestZoo compares some models of the zoo. Child
// processes of the test binary do the work, since a model may crash the runtime.
package conformance
