package models

import (
	"os"
	"path/filepath"
	"testing"
)

// A file of external data is mapped once, and what was mapped stays although
// another one takes its place.
func TestExternalDataStay(t *testing.T) {
	path := externalModel(t, withInitializers(
		testExternal("a", "location", "data"), testExternal("b", "location", "data", "offset", "8")))
	f := mustOpen(t, path)
	other := filepath.Join(filepath.Dir(path), "other")
	write(t, other, make([]byte, 16))
	if err := os.Rename(other, filepath.Join(filepath.Dir(path), "data")); err != nil {
		t.Fatal(err)
	}
	if got := f.externalBytes(f.Graph.Initializers[1].External); string(got) != "89abcdef" {
		t.Errorf("%q", got)
	}
	if len(f.folder.files) != 1 {
		t.Errorf("%d files mapped", len(f.folder.files))
	}
}

func TestEmptyExternalData(t *testing.T) {
	tensor := testTensor("w", Float32, 0).int(14, 1).sub(13, pb(nil).str(1, "location").str(2, "empty"))
	path := externalModel(t, withInitializers(tensor))
	write(t, filepath.Join(filepath.Dir(path), "empty"), nil)
	f := mustOpen(t, path)
	if got := f.externalBytes(f.Graph.Initializers[0].External); len(got) != 0 {
		t.Errorf("%v", got)
	}
}
