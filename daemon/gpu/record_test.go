package gpu

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/overlapd/overlapd/cuda/mig"
)

// A link where the record is written beside the old one has no other file
// written; what a daemon that died left there is no hindrance.
func TestRecordFollowsNoLink(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, recordName)
	precious := filepath.Join(dir, "precious")
	if err := os.WriteFile(precious, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := mig.Record{Format: "overlapd-mig/1", GPU: "GPU-1", Boot: "1", EnabledMode: true}
	for name, plant := range map[string]func(next string) error{
		"a link":     func(next string) error { return os.Symlink(precious, next) },
		"a leftover": func(next string) error { return os.WriteFile(next, []byte("{"), 0o666) },
	} {
		if err := plant(path + ".new"); err != nil {
			t.Fatal(err)
		}
		if err := writeRecord(dir, r); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got, err := ReadRecord(dir); err != nil || got.Boot != r.Boot {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
		if info, err := os.Lstat(path); err != nil || info.Mode() != 0o600 {
			t.Errorf("%s: the record is %v, %v", name, info.Mode(), err)
		}
	}
	if b, err := os.ReadFile(precious); err != nil || string(b) != "precious" {
		t.Errorf("the file behind the link holds %q, %v", b, err)
	}
}
