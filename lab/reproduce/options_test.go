package reproduce

import (
	"errors"
	"strings"
	"testing"
)

func TestOptionsTellEveryFault(t *testing.T) {
	o := Options{Seeds: maxSeeds + 1, Epochs: -1, Figures: []string{"15", "99"}, Policies: []string{"lifo"}}
	_, err := o.check(figures)
	if !errors.Is(err, errOptions) {
		t.Fatalf("%v", err)
	}
	for _, want := range []string{"--data DIR", "--out DIR", "1001 seeds; give 1 to 1000", "0 queries a run", "-1 epochs", `no figure "99"; give some of highest-load, gain, pool, 10, 14`, `unknown policy "lifo"; give some of fcfs-authors, `} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not among\n%v", want, err)
		}
	}
	if strings.Contains(err.Error(), `figure "15"`) {
		t.Errorf("figure 15 is refused: %v", err)
	}
	o = DefaultOptions()
	o.Data, o.Out = "x", "y"
	if _, err := o.check(figures); err != nil {
		t.Errorf("the defaults: %v", err)
	}
}
