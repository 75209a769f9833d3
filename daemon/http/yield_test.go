package http

import (
	"runtime"
	"strings"
	"testing"

	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/models"
)

// Who reads or writes a long tensor as JSON lets others run meanwhile, even where there is
// one processor: the scheduler among them.
func TestLongTensorsLetOthersRun(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	const elements = 4 * sliceBytes / 8
	in := query.Input{Name: "X", Tensor: models.Tensor{Type: models.Float64, Shape: []int64{1, elements}}, Elements: elements}
	in.Text = []byte("[" + strings.Repeat("1,", elements-1) + "1]")
	data := make([]byte, 8*elements)
	for what, work := range map[string]func(){
		"reading": func() {
			if n, err := writeInput(data, &in); err != nil || n != len(data) {
				t.Error(n, err)
			}
		},
		"writing": func() {
			if _, ok := appendElements(nil, models.Float64, data); !ok {
				t.Error("it has no JSON")
			}
		},
	} {
		ran := make(chan struct{})
		go close(ran)
		work()
		select {
		case <-ran:
		default:
			t.Errorf("%s: nobody else ran", what)
		}
	}
}
