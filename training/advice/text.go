package advice

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// Limits of what is shown. All of it is in the JSON form.
const (
	maxTextMatrix = 24 // services
	maxTextSets   = 60
)

// WriteText writes the advice for people to read.
func (a *Advice) WriteText(w io.Writer) error {
	t := &adviceText{Advice: a, w: w}
	for _, section := range []func(){t.summary, t.solo, t.sets, t.matrix, t.bad, t.division, t.next, t.cost} {
		section()
	}
	return t.err
}

type adviceText struct {
	*Advice
	w   io.Writer
	err error // the first
}

func (t *adviceText) printf(format string, args ...any) {
	_, err := fmt.Fprintf(t.w, format, args...)
	t.err = cmp.Or(t.err, err)
}

// table writes lines of cells that tabs part.
func (t *adviceText) table(write func(w io.Writer)) {
	w := tabwriter.NewWriter(t.w, 0, 0, 2, ' ', 0)
	write(w)
	t.err = cmp.Or(t.err, w.Flush())
}

func (t *adviceText) summary() {
	t.printf("%s, %s measured together", plural(t.Rows, "group"), plural(len(t.Sets), "set of models", "sets of models"))
	if t.Device != "" {
		t.printf(", on %s", t.Device)
	}
	t.printf("\n")
}

// solo says which solo times were used.
func (t *adviceText) solo() {
	counts := map[SoloSource]int{}
	for _, s := range t.Solo {
		counts[s.Source]++
	}
	t.printf("Solo times of %s:\n", plural(len(t.Solo), "model and batch size", "models and batch sizes"))
	for _, s := range []struct {
		source SoloSource
		means  string
	}{
		{SoloGiven, "from the file given; how they spread over operators stays as measured"},
		{SoloMeasured, "measured: spans that ran alone, fitted together with groups of several"},
		{SoloProfiled, "the sum of what each operator takes"},
		{SoloInferred, "inferred from groups of several spans"},
	} {
		if n := counts[s.source]; n > 0 {
			t.printf("  %d %s\n", n, s.means)
		}
	}
	for _, s := range t.Solo {
		if s.Apart() {
			t.printf("  %s: %.2f ms in the file, %.2f ms in the groups; which of them was measured under other conditions?\n", s.name(), s.Micros/1e3, s.Fitted/1e3)
		}
	}
}

func (s SoloTime) name() string {
	if s.SeqLen > 0 {
		return fmt.Sprintf("%s at batch size %d, sequence length %d", s.Model, s.Size, s.SeqLen)
	}
	return fmt.Sprintf("%s at batch size %d", s.Model, s.Size)
}

func (t *adviceText) sets() {
	if len(t.Sets) == 0 {
		t.printf("\nNo two models were measured together.\n")
		return
	}
	t.printf("\nGain is solo time over the group's latency; beyond 1 overlapping pays.\n")
	t.table(func(w io.Writer) {
		fmt.Fprintln(w, "MODELS\tGROUPS\tGAIN\tP10\tMEDIAN\tP90\tPAYS\tHIDDEN\tNOISE\tVERDICT")
		for _, s := range t.Sets[:min(len(t.Sets), maxTextSets)] {
			fmt.Fprintf(w, "%s\t%d\t%.2f\t%.2f\t%.2f\t%.2f\t%.0f %%\t%.0f %%\t%.0f %%\t%s\n", s.name(), s.Groups, s.Gain,
				s.P10, s.Median, s.P90, 100*s.Pays, 100*s.Hidden, 100*s.Noise, s.Verdict)
		}
	})
	if more := len(t.Sets) - maxTextSets; more > 0 {
		t.printf("and %d more\n", more)
	}
}

// matrix writes what each two services gain.
func (t *adviceText) matrix() {
	n := len(t.Services)
	if n < 2 || n > maxTextMatrix {
		return
	}
	t.printf("\nGain of two services (~ estimated, ! should not share a device):\n")
	t.table(func(w io.Writer) {
		for i := range n {
			fmt.Fprintf(w, "\t%d", i+1)
		}
		fmt.Fprintln(w)
		for i, name := range t.Services {
			fmt.Fprintf(w, "%d %s", i+1, name)
			for j := range n {
				fmt.Fprintf(w, "\t%s", t.Pairs[i][j].cell(i == j))
			}
			fmt.Fprintln(w)
		}
	})
	if t.estimated() {
		t.printf("Estimates take a model to gain alike with all others, which misses the measured gains by %.0f %%.\n", 100*t.Off)
	}
}

func (a *Advice) estimated() bool {
	for i, row := range a.Pairs {
		for j, g := range row {
			if i != j && !g.Measured {
				return true
			}
		}
	}
	return false
}

func (g PairGain) cell(self bool) string {
	if self {
		return "."
	}
	mark := ""
	if !g.Measured {
		mark = "~"
	}
	if g.Bad {
		mark = "!" + mark
	}
	return fmt.Sprintf("%s%.2f", mark, g.Gain)
}

func (t *adviceText) bad() {
	t.printf("\nShould not share a device:\n")
	none := true
	for i := range t.Sets {
		if s := &t.Sets[i]; s.Bad() {
			t.printf("  %s: %s\n", s.name(), s.Reason())
			none = false
		}
	}
	for i, row := range t.Pairs {
		for j, g := range row[:i] {
			if g.Bad && !g.Measured {
				t.printf("  %s + %s: no gain is expected, from what they gain with others\n", t.Services[j], t.Services[i])
				none = false
			}
		}
	}
	if none {
		t.printf("  none\n")
	}
}

func (t *adviceText) division() {
	d := &t.Division
	how := "the best there is"
	if !d.Exact {
		how = "found by exchanging services while that helped"
	}
	t.printf("\nDivision into groups of at most %d, %s:\n", d.Size, how)
	t.table(func(w io.Writer) {
		for i, s := range d.Devices {
			fmt.Fprintf(w, "  device %d\t%s\t%s\n", i+1, strings.Join(s.Services, ", "), s.note())
		}
	})
	for _, b := range d.Bad {
		t.printf("  %s and %s share a device all the same: %s\n", b[0], b[1], d.unavoidable())
	}
}

func (s *DeviceShare) note() string {
	notes := []string{"alone"}
	if len(s.Services) > 1 {
		how := map[Basis]string{BasisMeasured: "measured", BasisPairs: "from its pairs", BasisEstimated: "estimated"}
		notes[0] = fmt.Sprintf("gain %.2f, %s", s.Gain, how[s.Basis])
	}
	if s.Busy > 0 {
		notes = append(notes, fmt.Sprintf("busy %.0f %%", 100*s.Busy))
	}
	if s.Busy > 1 {
		notes = append(notes, "more than the device has")
	}
	return strings.Join(notes, "; ")
}

func (d *Division) unavoidable() string {
	if d.Enough > 0 {
		return fmt.Sprintf("it takes %d devices to keep such services apart", d.Enough)
	}
	return "no division without was found"
}

func (t *adviceText) next() {
	t.printf("\nTo be measured next:\n")
	if len(t.Next) == 0 {
		t.printf("  nothing; all that share a device were measured together\n")
	}
	for _, n := range t.Next {
		t.printf("  %s + %s: %s\n", n.Models[0], n.Models[1], n.Reason)
	}
}

func (t *adviceText) cost() {
	c := &t.Cost
	known := "as here"
	if !c.RepeatsKnown {
		known = "assumed"
	}
	t.printf("\nMeasuring takes %d groups a pair, %.2f s a group (%d runs, %s):\n", c.GroupsPerPair, c.SecondsPerGroup, c.Repeats, known)
	t.table(func(w io.Writer) {
		for _, some := range []struct {
			name string
			cost CostOfSome
		}{{"all pairs", c.AllPairs}, {"those that share a device", c.Division}, {"left to be measured", c.Next}} {
			fmt.Fprintf(w, "  %s\t%s\t%d groups\t%.1f h\n", some.name, plural(some.cost.Pairs, "pair"), some.cost.Groups, some.cost.Hours)
		}
	})
}

// plural returns a number of things; the name of several is that of one with
// an s unless it is given.
func plural(n int, names ...string) string {
	name := names[len(names)-1]
	switch {
	case n == 1:
		name = names[0]
	case len(names) == 1:
		name += "s"
	}
	return fmt.Sprintf("%d %s", n, name)
}
