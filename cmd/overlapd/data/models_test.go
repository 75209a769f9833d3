package data

import "testing"

func TestMetric(t *testing.T) {
	for n, want := range map[int64]string{
		0: "0 B", 999: "999 B", 1000: "1.0 kB", 99_949: "99.9 kB", 99_950: "100 kB", 999_499: "999 kB",
		999_500: "1.0 MB", 102_000_000: "102 MB", 3_000_000_000: "3.0 GB", 5_000_000_000_000_000: "5000 TB",
	} {
		if got := metric(n, "B"); got != want {
			t.Errorf("%d: got %q, want %q", n, got, want)
		}
	}
	if got := metric(12, ""); got != "12" {
		t.Errorf("without a unit: %q", got)
	}
}
