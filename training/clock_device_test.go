package training

import (
	"encoding/json"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// What the device's own clock says is kept beside the latency, unless a run
// has none of it.
func TestDeviceClock(t *testing.T) {
	for name, tt := range map[string]struct {
		clock func(took time.Duration) time.Duration
		want  float64 // of the latency
	}{
		"none":      {nil, 0},
		"a half":    {func(took time.Duration) time.Duration { return took / 2 }, 0.5},
		"sometimes": {sometimes(), 0},
	} {
		d := newDevice(t, testOptions(20), nil, nil)
		if tt.clock != nil {
			d.clock = tt.clock
		}
		d.run(maxTestSteps)
		if len(d.rows) == 0 {
			t.Fatalf("%s: no rows", name)
		}
		for _, r := range d.rows {
			if share := r.Device / r.Median; share < tt.want-0.01 || share > tt.want+0.01 {
				t.Errorf("%s: %v of %v", name, r.Device, r.Median)
			}
		}
	}
}

// sometimes is a clock that is read every second time.
func sometimes() func(time.Duration) time.Duration {
	n := 0
	return func(took time.Duration) time.Duration {
		n++
		return took * time.Duration(n%2)
	}
}

// onDevice is a dataset of which one row knows the device's time.
func onDevice() *Dataset {
	d := measured("d")
	d.Rows[0].Device = d.Rows[0].Median / 4
	return d
}

func TestDeviceClockInStore(t *testing.T) {
	s, _ := openStore(t, t.TempDir())
	want := onDevice()
	mustAppend(t, s, want)
	got, err := s.Dataset("d", nil)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(rowSet(want), rowSet(got)); diff != "" {
		t.Error(diff)
	}
	list, err := s.List()
	i := slices.IndexFunc(list, func(s Summary) bool { return s.Share > 0 })
	if err != nil || i < 0 || list[i].Share != 0.25 {
		t.Errorf("%+v, %v", list, err)
	}
	var old storedRow // as an earlier version wrote it
	if err := json.Unmarshal([]byte(`{"s":[[0,0,5,1,0]],"n":3,"us":[10,11,1]}`), &old); err != nil || old.row().Device != 0 || old.row().Median != 10 {
		t.Errorf("%+v, %v", old, err)
	}
	if text, err := json.Marshal(old); err != nil || strings.Contains(string(text), "dev") {
		t.Errorf("%s, %v", text, err)
	}
}

func TestDeviceClockInCSV(t *testing.T) {
	want := onDevice()
	var b strings.Builder
	if err := WriteCSV(&b, want); err != nil {
		t.Fatal(err)
	}
	first, _, _ := strings.Cut(b.String(), "\n")
	if !strings.HasSuffix(first, ",std,device") {
		t.Error(first)
	}
	got := mustRead(t, b.String())
	if diff := cmp.Diff(want.Rows, got.Rows, cmpopts.IgnoreFields(Row{}, "Repeats")); diff != "" {
		t.Error(diff)
	}
	head := strings.TrimSuffix(pairHeader, "\n") + ",device\n"
	if got := mustRead(t, head+"a,0,5,1,0,,,,,,10,10,1,\n"); got.Rows[0].Device != 0 {
		t.Errorf("%+v", got.Rows[0])
	}
	for field, fault := range map[string]string{
		"a,0,5,1,0,,,,,,10,10,1,x":   `column 14 (device) is "x": it must be a number`,
		"a,0,5,1,0,,,,,,10,10,1":     "13 fields, the first line names 14 columns",
		"a,0,5,1,0,,,,,,10,10,1,-1":  "column 14 (device)",
		"a,0,5,1,0,,,,,,10,10,1,2,3": "15 fields",
	} {
		if _, err := readCSV(strings.NewReader(head+field+"\n"), "f.csv"); err == nil || !strings.Contains(err.Error(), fault) {
			t.Errorf("%s: %v", field, err)
		}
	}
	want.Rows[0].Device = -1
	if err := WriteCSV(io.Discard, want); err == nil {
		t.Error("a negative time was written")
	}
}
