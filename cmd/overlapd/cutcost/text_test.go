package cutcost

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestWriteText(t *testing.T) {
	r := Report{Runs: []Row{
		{
			Model: "resnet50", Batch: 4, Threads: 2, Segments: 58, WholeMS: 91.234, CutMS: 93.5, Ratio: 1.0248,
			WholeRSSBytes: 300 << 20, CutRSSBytes: 330 << 20, RSSRatio: 1.1, Intermediates: 38 << 20, Equal: true,
		},
		{Model: "m", Batch: 1, Threads: 1, Segments: 2, WholeMS: 0.051, CutMS: 0.06, Ratio: 1.176, RSSRatio: 1},
	}}
	const want = `     model  batch  threads  operators  whole ms  cut ms  ratio  whole MiB  cut MiB  ratio  live MiB  outputs
  resnet50      4        2         58     91.23   93.50  1.025        300      330   1.10      38.0    equal
         m      1        1          2      0.05    0.06  1.176          0        0   1.00       0.0   DIFFER
`
	var b bytes.Buffer
	if err := r.WriteText(&b); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Error(diff)
	}
}
