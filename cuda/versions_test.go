package cuda_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/overlapd/overlapd/cuda"
)

func TestVersions(t *testing.T) {
	for _, c := range []struct {
		driver string
		runs   cuda.Version
		want   int
		phrase string // of the error; "" if they fit
	}{
		{"580.65.06", cuda.Version{Major: 13}, 13, ""},
		{"580.65.06", cuda.Version{Major: 13}, 12, ""},
		{"590.1", cuda.Version{}, 13, ""},
		{"525.60.13", cuda.Version{Major: 12}, 12, ""},
		{"550.54.15", cuda.Version{Major: 12, Minor: 4}, 13, "needs driver 580 or newer, and driver 550.54.15 is loaded; install driver 580 or newer and reboot, or take an ONNX Runtime for CUDA 12"},
		{"470.82", cuda.Version{Major: 11, Minor: 4}, 13, "install driver 580 or newer and reboot"},
		{"470.82", cuda.Version{Major: 11, Minor: 4}, 12, "needs driver 525"},
		{"580.65.06", cuda.Version{Major: 12, Minor: 9}, 13, "runs CUDA 12.9 at most"},
		{"580.65.06", cuda.Version{Major: 13}, 14, "nothing is known of CUDA 14"},
		{"", cuda.Version{}, 13, "no driver version"},
		{"N/A", cuda.Version{}, 12, "no driver version"},
		{"-5.1", cuda.Version{}, 12, "no driver version"},
	} {
		err := cuda.Versions(c.driver, c.runs, c.want)
		if (c.phrase == "") != (err == nil) {
			t.Errorf("%+v: %v", c, err)
		}
		if err != nil && (!errors.Is(err, cuda.ErrVersions) || !strings.Contains(err.Error(), c.phrase)) {
			t.Errorf("%+v: %v", c, err)
		}
	}
	if err := cuda.Versions("470.82", cuda.Version{}, 13); strings.Contains(err.Error(), "ONNX Runtime for CUDA 12") {
		t.Errorf("driver 470 does not run CUDA 12 either: %v", err)
	}
}
