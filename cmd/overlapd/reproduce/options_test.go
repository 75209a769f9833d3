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
	for _, want := range []string{"--data DIR", "--out DIR", "1001 seeds, not 1 to 1000", "0 queries a run", "-1 epochs", `no figure "99"; there are highest-load, 10, 14`, `unknown policy "lifo"`} {
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

func TestWants(t *testing.T) {
	all, some := Options{}, Options{Figures: []string{"14", "22"}}
	if !all.wants("99") || !some.wants("22") || some.wants("15") {
		t.Error("figures are not wanted as they were named")
	}
	FigureNames()[0] = "x"
	if FigureNames()[0] == "x" {
		t.Error("the names of figures can be changed from outside")
	}
}
