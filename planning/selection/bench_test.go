package selection

import (
	"cmp"
	"os"
	"path/filepath"
	"testing"
)

// paperVariants returns the variants of RAMSIS, and skips the test where they are not at hand.
func paperVariants(t testing.TB, task string, n int) []Variant {
	t.Helper()
	folder := filepath.Join(cmp.Or(os.Getenv("OVERLAPD_SHARED_DATA"), filepath.Join("..", "..", "shared", "data")), "ramsis")
	if _, err := os.Stat(folder); err != nil {
		t.Skipf("the measurements of RAMSIS are not at hand (%v): name the folder that has them in OVERLAPD_SHARED_DATA", err)
	}
	variants, err := ReadRAMSIS(folder, task)
	if err != nil {
		t.Fatal(err)
	}
	return Resize(Front(variants), n)
}
