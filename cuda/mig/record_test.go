package mig_test

import (
	"encoding/json"
	"errors"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/overlapd/overlapd/cuda/mig"
	"github.com/overlapd/overlapd/internal/fakes/fakegpu"
)

func TestRecordJSON(t *testing.T) {
	f := open(t, fakegpu.H100)
	f.apply("3g.40gb", "1g.10gb+me")
	for _, r := range f.saved {
		text, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		back, err := mig.ParseRecord(text)
		if err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		if diff := cmp.Diff(r, back); diff != "" {
			t.Error(diff)
		}
	}
	var states []string
	for _, r := range f.saved {
		states = append(states, r.Entries[len(r.Entries)-1].State)
	}
	want := []string{mig.Creating, mig.Bare, mig.Ready, mig.Creating, mig.Bare, mig.Ready}
	if diff := cmp.Diff(want, states); diff != "" {
		t.Error(diff)
	}
}

func TestParseRecordRefuses(t *testing.T) {
	for _, text := range []string{
		``, `{`, `[]`, `{"format":"overlapd-mig/2"}`, `null`,
		`{"format":"overlapd-mig/1","instances":[{}]}`,
		`{"format":"overlapd-mig/1","instances":[{"state":"ready","profile":"1g.5gb","placement":{"start":0,"size":1}}]}`,
		`{"format":"overlapd-mig/1","instances":[{"state":"bare","profile":"x","placement":{"start":0,"size":1}}]}`,
		`{"format":"overlapd-mig/1","instances":[{"state":"bare","profile":"1g.5gb","placement":{"start":-1,"size":1}}]}`,
	} {
		if r, err := mig.ParseRecord([]byte(text)); !errors.Is(err, mig.ErrRecord) {
			t.Errorf("%s: got %+v, %v", text, r, err)
		}
	}
}

func FuzzParseRecord(f *testing.F) {
	f.Add([]byte(`{"format":"overlapd-mig/1","gpu":"GPU-1","instances":[{"state":"bare","profile":"1g.5gb","placement":{"start":0,"size":1}}]}`))
	f.Add([]byte(`{"format":"overlapd-mig/1","instances":null}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		r, err := mig.ParseRecord(text)
		if err != nil {
			if !errors.Is(err, mig.ErrRecord) {
				t.Error(err)
			}
			return
		}
		again, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		if back, err := mig.ParseRecord(again); err != nil || !cmp.Equal(r, back) {
			t.Errorf("%v: %+v, %+v", err, r, back)
		}
	})
}

func TestCheckProfile(t *testing.T) {
	for name, ok := range map[string]bool{
		"1g.5gb": true, "7g.141gb": true, "1g.10gb+me": true, "1g.24gb-me": true, "1g.24gb+me.all": true, "4g.96gb+gfx": true,
		"": false, "0g.5gb": false, "1g": false, "1g.5gb ": false, "1c.3g.20gb": false, "1g.5gb+you": false, "3G.40GB": false,
	} {
		if err := mig.CheckProfile(name); ok != (err == nil) {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func TestBoot(t *testing.T) {
	if _, err := os.Stat("/proc/sys/kernel/random/boot_id"); err == nil && len(mig.Boot()) != 36 {
		t.Errorf("boot %q", mig.Boot())
	}
}
