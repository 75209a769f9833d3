package models

import "testing"

func TestModelsDiffer(t *testing.T) {
	const one, other = "64718bbcbb0c5d5a", "99aabbccddeeff00"
	for _, tt := range []struct{ a, b, inA, inB string }{
		{MeasuredAs(one, "2 threads"), MeasuredAs(one, "4 threads"), "2 threads", "4 threads"},
		{MeasuredAs(one, "2 threads"), MeasuredAs(other, "2 threads"), "model file 64718bbcbb0c", "model file 99aabbccddee"},
		{MeasuredAs(one, "2 threads, or one beside others on 4 cores"), MeasuredAs(one, "2 threads, or one beside others on 8 cores"),
			"or one beside others on 4 cores", "or one beside others on 8 cores"},
		{MeasuredAs(one, "2 threads, MPS 50%"), MeasuredAs(one, "2 threads"), "model file 64718bbcbb0c, 2 threads, MPS 50%", "model file 64718bbcbb0c, 2 threads"},
		{"beef", MeasuredAs(one, "2 threads"), "model file beef", "model file 64718bbcbb0c, 2 threads"},
	} {
		if inA, inB := ModelsDiffer(tt.a, tt.b); inA != tt.inA || inB != tt.inB {
			t.Errorf("%s and %s: %q and %q", tt.a, tt.b, inA, inB)
		}
	}
}

func TestDevicesDiffer(t *testing.T) {
	for _, tt := range []struct{ a, b, inA, inB string }{
		{MeasuredOn("Xeon, 4 cores", "1.30.0"), MeasuredOn("Xeon, 4 cores", "1.32.0"), "ONNX Runtime 1.30.0", "ONNX Runtime 1.32.0"},
		{MeasuredOn("Xeon, 4 cores", "1.30.0"), MeasuredOn("Xeon, 8 cores", "1.30.0"), "4 cores", "8 cores"},
		{MeasuredOn("Xeon, 4 cores, slowed 2 times", "1.30.0"), MeasuredOn("Xeon, 4 cores", "1.30.0"), "Xeon, 4 cores, slowed 2 times, ONNX Runtime 1.30.0", "Xeon, 4 cores, ONNX Runtime 1.30.0"},
	} {
		if inA, inB := DevicesDiffer(tt.a, tt.b); inA != tt.inA || inB != tt.inB {
			t.Errorf("%s and %s: %q and %q", tt.a, tt.b, inA, inB)
		}
	}
}
