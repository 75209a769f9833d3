package load

import (
	"math"
	"testing"
	"time"
)

func TestScheduleStatistics(t *testing.T) {
	const rate = 1000.0
	for _, tc := range []struct {
		arrivals string
		cv, want float64
	}{
		{poisson, 0, 1},
		{constant, 0, 0},
		{gamma, 0.5, 0.5},
		{gamma, 1, 1},
		{gamma, 3, 3},
	} {
		due := schedule(tc.arrivals, rate, tc.cv, -time.Second, 199*time.Second, 0, 7, 0)
		mean, cv := gapStatistics(due)
		// 200,000 gaps: the standard error of the mean is cv/447.
		if math.Abs(mean*rate-1) > 4*(tc.want+0.01)/447 {
			t.Errorf("%s cv %g: mean gap %g, want %g", tc.arrivals, tc.cv, mean, 1/rate)
		}
		if math.Abs(cv-tc.want) > 0.05*tc.want+1e-3 {
			t.Errorf("%s: cv %g, want %g", tc.arrivals, cv, tc.want)
		}
	}
}

func gapStatistics(due []time.Duration) (mean, cv float64) {
	n := float64(len(due) - 1)
	var sum, squares float64
	for i := 1; i < len(due); i++ {
		g := (due[i] - due[i-1]).Seconds()
		sum += g
		squares += g * g
	}
	mean = sum / n
	return mean, math.Sqrt(max(squares/n-mean*mean, 0)) / mean
}

func TestConstantArrivalsOfTwoServicesInterleave(t *testing.T) {
	first := schedule(constant, 10, 0, 0, time.Second, 0, 1, 0)
	second := schedule(constant, 10, 0, 0, time.Second, 0.5, 1, 1)
	if len(first) != 10 || len(second) != 10 {
		t.Fatalf("%d and %d requests, want 10 and 10", len(first), len(second))
	}
	for i := range first {
		if got := second[i] - first[i]; got != 50*time.Millisecond {
			t.Fatalf("request %d is %s apart, want half a gap", i, got)
		}
	}
}

func TestRateIsDividedAmongServices(t *testing.T) {
	o := DefaultOptions()
	o.Services, o.Rate, o.Warmup, o.Duration = []string{"a", "b"}, 1000, 0, 20*time.Second
	shared := len(o.arrivalsOf(0))
	o.RatePerService = true
	each := len(o.arrivalsOf(0))
	if math.Abs(float64(shared)-10_000) > 500 || math.Abs(float64(each)-20_000) > 700 {
		t.Errorf("%d requests of a shared rate and %d of one per service, want about 10000 and 20000", shared, each)
	}
}
