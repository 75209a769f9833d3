package mig_test

import (
	"encoding/json"
	"errors"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/overlapd/overlapd/cuda/mig"
)

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

func TestBoot(t *testing.T) {
	if _, err := os.Stat("/proc/sys/kernel/random/boot_id"); err == nil && len(mig.Boot()) != 36 {
		t.Errorf("boot %q", mig.Boot())
	}
}
