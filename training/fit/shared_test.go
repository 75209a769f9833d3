package fit

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/overlapd/overlapd/training"
)

// sharedPairs returns every fourth of the groups that the Abacus authors
// measured on an A100, and the folder that they lie in. It skips the test where
// they are not.
func sharedPairs(t *testing.T) (d *training.Dataset, folder string) {
	t.Helper()
	root := os.Getenv("OVERLAPD_SHARED_DATA")
	if root == "" {
		t.Skip("OVERLAPD_SHARED_DATA does not name the folder with the measurements")
	}
	if testing.Short() {
		t.Skip("it takes some seconds")
	}
	folder = filepath.Join(root, "abacus-a100")
	d, err := training.ReadPath(filepath.Join(folder, "pairs"))
	if err != nil {
		t.Fatal(err)
	}
	for i := range d.Rows {
		if i%4 == 0 {
			d.Rows[i/4] = d.Rows[i]
		}
	}
	d.Rows = d.Rows[:len(d.Rows)/4]
	return d, folder
}

// TestSharedPairs fits a part of the groups, few epochs long.
func TestSharedPairs(t *testing.T) {
	d, _ := sharedPairs(t)
	o := DefaultOptions()
	o.Compare = true
	o.Epochs = 15
	_, r := train(t, d, o)
	for i, within := range [][2]float64{{1.5, 4.5}, {3, 6}, {26, 34}, {24, 32}} {
		if e := r.Techniques[i]; e.Test < within[0] || e.Test > within[1] {
			t.Errorf("%s errs %.2f %%, not %v", e.Name, e.Test, within)
		}
	}
}
