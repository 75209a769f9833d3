package sim

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

func writeTrace(t testing.TB, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "trace.csv")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// Dates and times count from the first, however they are written.
func TestRecordingTimes(t *testing.T) {
	want := []time.Duration{0, 0, 1500 * ms, 60*time.Second + 100}
	for name, text := range map[string]string{
		"seconds":    "time_s\n0\n0\n1.5\n60.0000001\n",
		"trace":      "TIMESTAMP,ContextTokens\n2023-11-16 18:15:46.6805900,1\n2023-11-16 18:15:46.6805900,2\n2023-11-16 18:15:48.1805900,3\n2023-11-16 18:16:46.6805901,4\n",
		"over a day": "timestamp\r\n2023-12-31 23:59:50\r\n2023-12-31 23:59:50\r\n2023-12-31 23:59:51.5\r\n2024-01-01 00:00:50.0000001",
		"RFC 3339":   "\ufeffarrived_at\n2024-01-01T00:00:00Z\n2024-01-01T02:00:00+02:00\n2024-01-01T00:00:01.5Z\n2024-01-01T00:01:00.0000001Z\n",
		"no zone":    "arrived_at,x\n2024-01-01T00:00:00,1\n2024-01-01T00:00:00,1\n2024-01-01T00:00:01.5,1\n2024-01-01T00:01:00.0000001,1\n",
		"both":       "timestamp,time_s\nx,0\nx,0\nx,1.5\nx,60.0000001\n",
	} {
		r, err := readRecording(new(Scenario), writeTrace(t, text))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for i, at := range r.times {
			if d := at - want[i]; d < -1 || d > 1 { // seconds are rounded down
				t.Errorf("%s: query %d at %v, want %v", name, i, at, want[i])
			}
		}
		if len(r.times) != len(want) || r.queries != nil {
			t.Errorf("%s: %v", name, r.times)
		}
	}
}

func TestRecordingFaults(t *testing.T) {
	for want, text := range map[string]string{
		`trace.csv:2: unusable arrivals: column 1 (timestamp) is "1700000000": it must be a date and time such as`:                                "timestamp\n1700000000\n",
		`trace.csv:3: unusable arrivals: column 1 (timestamp) is "2024-01-01 00:00:00": it is before the time in the line above; sort`:            "timestamp\n2024-01-01 00:00:01\n2024-01-01 00:00:00\n",
		`trace.csv:4: unusable arrivals: column 1 (timestamp) is "2024-01-01 00:00:01": it is before the time in the line above; sort`:            "timestamp\n2024-01-01 00:00:00\n2024-01-01 00:00:02\n2024-01-01 00:00:01\n",
		`trace.csv:3: unusable arrivals: column 1 (timestamp) is "2026-01-01 00:00:00": it is more than 8760h0m0s after the first query; shorten`: "timestamp\n2024-01-01 00:00:00\n2026-01-01 00:00:00\n",
		"trace.csv:1: unusable arrivals: columns 1 and 3 are both timestamp or arrived_at; rename one":                                            "timestamp,x,arrived_at\n",
		"trace.csv:1: unusable arrivals: columns 1 and 2 are both time_s; rename one":                                                             "time_s,TIME_S\n1,2\n",
		`trace.csv:2: unusable arrivals: column 2 (size) is "0": it must be a whole number from 1`:                                                "time_s,size\n0,0\n",
		`trace.csv:3: unusable arrivals: column 2 (size) is "1.5": it must be a whole number`:                                                     "time_s,size\n0,1\n0,1.5\n",
		`trace.csv:2: unusable arrivals: column 2 (seq_len) is "-1": it must be a whole number from 0`:                                            "time_s,seq_len\n0,-1\n",
		`trace.csv:2: unusable arrivals: column 1 (time_s) is "Inf": it must be a number from 0`:                                                  "time_s\nInf\n",
		"trace.csv: unusable arrivals: not plain text: compressed with gzip; unpack it first":                                                     "\x1f\x8b\x08",
		"trace.csv:2: unusable arrivals: too large: more than 1048576 bytes and no row":                                                           "time_s\n" + strings.Repeat("1", 2<<20),
		`trace.csv:1: unusable arrivals: no column time_s or timestamp among "` + strings.Repeat("x", 80) + "\"":                                  strings.Repeat("x", 1000) + "\n",
		"trace.csv:3: unusable arrivals: wrong syntax":                                                                                            "time_s\n1\n\"2\n",
	} {
		if _, err := readRecording(new(Scenario), writeTrace(t, text)); !errors.Is(err, ErrArrivals) || !strings.Contains(err.Error(), want) {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	}
}

// recordedQueries has the shapes and services of a file.
const recordedQueries = "time_s,service,size,seq_len,color\n0,b,4,0,red\n0.5,a,8,0,red\n1,b,16,0,red\n2,b,4,0,blue\n"

func recordedScenario() Scenario {
	sc := busyScenario("fcfs")
	sc.Services = []Service{{Name: "a", Target: time.Second}, {Name: "b", Target: 2 * time.Second, Sizes: []int{1}}}
	sc.Arrivals, sc.Queries, sc.Clients = Arrivals{}, 0, clients{}
	return sc
}

func TestRecordingGives(t *testing.T) {
	path := writeTrace(t, recordedQueries)
	sc := recordedScenario()
	sc.Arrivals.Scale = 2
	if ignored, err := GiveRecorded(&sc, path); err != nil || !slices.Equal(ignored, []string{"color"}) {
		t.Fatalf("%v, passed over: %v", err, ignored)
	}
	want := []Query{{At: 0, Service: 1, Size: 4}, {At: 250 * ms, Service: 0, Size: 8}, {At: 500 * ms, Service: 1, Size: 16}, {At: time.Second, Service: 1, Size: 4}}
	if !reflect.DeepEqual(sc.Given, want) {
		t.Errorf("got  %v\nwant %v", sc.Given, want)
	}
	if got, err := Run(sc); err != nil || got.Queries != 4 {
		t.Errorf("%+v, %v", got, err)
	}
	sc = recordedScenario()
	sc.Queries = 2
	if _, err := GiveRecorded(&sc, path); err != nil || len(sc.Given) != 2 {
		t.Errorf("%v, %v: want two queries", sc.Given, err)
	}
}

// The queries that are kept keep what was recorded of them, and as many are
// kept as without it.
func TestRecordingIsThinned(t *testing.T) {
	var text strings.Builder
	text.WriteString("time_s,size\n")
	sizes := []string{"1", "2", "3", "4", "5", "6", "7"}
	for i := range 7000 {
		text.WriteString(string('0'+rune(i/1000)) + "." + string([]byte{'0' + byte(i/100%10), '0' + byte(i/10%10), '0' + byte(i%10)}) + "," + sizes[i%7] + "\n")
	}
	sc := recordedScenario()
	sc.Arrivals.Keep = 0.25
	if _, err := GiveRecorded(&sc, writeTrace(t, text.String())); err != nil {
		t.Fatal(err)
	}
	if n := len(sc.Given); math.Abs(float64(n)-1750) > 150 {
		t.Errorf("%d of 7000 are kept, want about 1750", n)
	}
	for _, q := range sc.Given {
		if i := int(math.Round(q.At.Seconds() * 1000)); q.Size != 1+i%7 {
			t.Fatalf("the query at %v has size %d, want %d", q.At, q.Size, 1+i%7)
		}
	}
}

// What the file does not say is drawn for the service that it says.
func TestRecordingDraws(t *testing.T) {
	sc := recordedScenario()
	sc.Services[0].Sizes, sc.Clients.Timeout = []int{4, 8}, time.Minute
	if _, err := GiveRecorded(&sc, writeTrace(t, "time_s,service\n"+strings.Repeat("1,a\n1,b\n", 200))); err != nil {
		t.Fatal(err)
	}
	counts := map[Query]int{}
	for _, q := range sc.Given {
		counts[q]++
	}
	leaves := time.Second + time.Minute
	if b := counts[Query{At: time.Second, Service: 1, Size: 1, Leaves: leaves}]; b != 200 {
		t.Errorf("%d queries of b with size 1", b)
	}
	if n := counts[Query{At: time.Second, Size: 4, Leaves: leaves}]; n < 60 || n > 140 {
		t.Errorf("%d of 200 queries of a have size 4", n)
	}
}

// Whatever a file holds, it is refused or has times in order.
func FuzzReadRecording(f *testing.F) {
	f.Add([]byte(recordedQueries))
	f.Add([]byte("TIMESTAMP,ContextTokens\n2023-11-16 18:15:46.6805900,1\n"))
	f.Add([]byte("time_s\n1e300\n"))
	f.Add([]byte("arrived_at\n0000-01-01T00:00:00Z\n9999-12-31T23:59:59Z\n"))
	path := filepath.Join(f.TempDir(), "trace.csv")
	f.Fuzz(func(t *testing.T, data []byte) {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		sc := recordedScenario()
		r, err := readRecording(&sc, path)
		if err != nil {
			if !errors.Is(err, ErrArrivals) || !strings.Contains(err.Error(), "trace.csv") {
				t.Fatal(err)
			}
			return
		}
		if len(r.times) == 0 || !slices.IsSorted(r.times) || r.times[0] < 0 || r.times[len(r.times)-1] > maxTime {
			t.Fatalf("%v", r.times)
		}
	})
}

func TestRecordingGivesNot(t *testing.T) {
	for want, text := range map[string]string{
		`trace.csv:3: unusable arrivals: column 2 (service) is "c": there is no such service; the services are a, b`: "time_s,service\n0,a\n1,c\n2,c\n",
		"trace.csv:2: size 64 and sequence length 0; model a was measured up to 32":                                  "time_s,service,size\n0,a,64\n",
		"trace.csv:3: size 1 and sequence length 5; model":                                                           "time_s,seq_len\n0,0\n1,5\n",
	} {
		sc := recordedScenario()
		if _, err := GiveRecorded(&sc, writeTrace(t, text)); !errors.Is(err, ErrArrivals) || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}
