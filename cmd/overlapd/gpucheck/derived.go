package gpucheck

import (
	"fmt"
	"math"
	"strings"
)

// derived returns what the measurements themselves show of what is taken for
// granted.
func (r *Report) derived() []Look {
	if r.Rehearsal {
		return nil
	}
	d := &derivation{report: r}
	d.facts()
	d.outputs()
	d.cuts()
	d.sessions()
	d.pairs()
	d.repeat()
	d.load()
	return d.looks
}

type derivation struct {
	report *Report
	looks  []Look
}

func (d *derivation) say(answer, format string, args ...any) func(ids ...string) {
	saw := fmt.Sprintf(format, args...)
	return func(ids ...string) {
		for _, id := range ids {
			d.looks = append(d.looks, Look{id, saw, answer})
		}
	}
}

func answer(holds bool) string {
	if holds {
		return Holds
	}
	return Misses
}

func (d *derivation) facts() {
	f := d.report.Facts
	if f == nil {
		return
	}
	if f.GPU == nil {
		d.say(Misses, "%s", f.GPUFault)("F1")
		return
	}
	d.say(Holds, "facts were read with driver %s, NVML %s", f.GPU.Driver, f.GPU.NVML)("F1")
	for _, g := range f.GPU.Devices {
		if !g.MIG.Capable {
			continue
		}
		var names []string
		for _, p := range g.MIG.Profiles {
			names = append(names, p.Name)
		}
		profiles := fmt.Sprintf("GPU %d of %.1f GiB, MIG mode %t, as user %d: profiles %s; placements listed: %t",
			g.Index, float64(g.Memory.Value.Total)/(1<<30), g.MIG.Enabled, f.User, strings.Join(names, " "), g.MIG.Listed)
		d.say(Seen, "%s", profiles)("F6", "F7")
		if f.User == 0 && !g.MIG.Enabled {
			d.say(answer(g.MIG.Listed), "%s", profiles)("F8")
		}
		if f.User != 0 {
			d.say(answer(len(names) > 0), "%s", profiles)("F9")
		}
	}
}

func (d *derivation) outputs() {
	ran, apart, failed := 0, 0, ""
	worst := 0.0
	for _, o := range d.report.Outputs {
		switch {
		case o.Error != "":
			failed = o.Error
		case !o.Within:
			ran++
			apart++
		default:
			ran++
		}
		worst = max(worst, o.RelToMax)
	}
	if ran == 0 && failed == "" {
		return
	}
	loads := fmt.Sprintf("%d models ran cut at every node, of %d", ran, len(d.report.Outputs))
	if failed != "" {
		loads += "; " + failed
	}
	d.say(answer(ran > 0), "%s", loads)("C1", "C2", "E2")
	d.say(answer(failed == ""), "%s", loads)("C3", "E3", "E4")
	right := fmt.Sprintf("%d of %d that ran are within their tolerance, the worst is off by %.1e of the largest value", ran-apart, ran, worst)
	d.say(answer(ran > 0 && apart == 0), "%s", right)("C5", "E1", "E5", "E6", "E7", "E8", "E9", "E21")
}

// hostShare is how much longer a span may take for the host than for the device:
// beyond it, waking up and launching matter.
const hostShare = 0.2

func (d *derivation) cuts() {
	for _, c := range d.report.Cuts {
		if c.Batch != 1 || c.DeviceMS == 0 {
			continue
		}
		over := c.CutMS - c.DeviceMS
		d.say(answer(over >= 0 && over <= hostShare*c.CutMS), "%s, %d segments: %.3f ms for the host, %.3f ms between events", c.Model, c.Segments, c.CutMS, c.DeviceMS)("E1", "E17")
		if c.Wanted >= 16 && c.Wanted <= 64 {
			d.say(answer(c.Ratio <= cutLimit), "%s, %d segments, batch 1: %.3f of the whole", c.Model, c.Segments, c.Ratio)("E16")
		}
		if c.Wanted == 0 {
			d.say(Seen, "%s at every node, %d segments: %.3f of the whole", c.Model, c.Segments, c.Ratio)("E21")
		}
	}
	d.variants()
}

// variants compares other ways of running the same model with the usual one.
func (d *derivation) variants() {
	usual := map[string]VariantRow{}
	for _, v := range d.report.Variants {
		if v.Variant == usualVariant {
			usual[v.Model] = v
		}
	}
	for _, v := range d.report.Variants {
		u, ok := usual[v.Model]
		if !ok || v.Variant == usualVariant {
			continue
		}
		saw := fmt.Sprintf("%s %s: %.3f ms, load %.0f ms; usual %.3f ms, load %.0f ms", v.Model, v.Variant, v.CutMS, v.LoadMS, u.CutMS, u.LoadMS)
		switch v.Variant {
		case exhaustive:
			d.say(answer(u.CutMS <= (1+slower)*v.CutMS), "%s", saw)("E19")
		case spinning:
			d.say(answer(u.CutMS <= (1+slower)*v.CutMS), "%s", saw)("E17")
		}
	}
}

// slower is how much slower the usual way may be than one that costs more.
const slower = 0.1

// What is counted for a session, and for the context of a process, in MiB.
const (
	countedSession = 40
	countedContext = 512
)

func (d *derivation) sessions() {
	coarsest := map[string]SessionRow{}
	for _, s := range d.report.Sessions {
		if c, ok := coarsest[s.Model]; s.TakenBytes > 0 && (!ok || s.Segments < c.Segments) {
			coarsest[s.Model] = s
		}
	}
	for _, s := range d.report.Sessions {
		if s.TakenBytes == 0 {
			continue
		}
		taken, counted := float64(s.TakenBytes)/(1<<20), float64(s.DeviceBytes)/(1<<20)-countedContext
		d.say(Seen, "%s, %d segments: %.0f MiB of the GPU taken beside the context, %.0f counted", s.Model, s.Segments, taken, counted)("E11")
		if c := coarsest[s.Model]; s.Segments > c.Segments {
			each := float64(s.TakenBytes-c.TakenBytes) / float64(s.Segments-c.Segments) / (1 << 20)
			d.say(answer(each <= countedSession), "%s: %.1f MiB for each segment from %d to %d, %d are counted", s.Model, each, c.Segments, s.Segments, countedSession)("E10")
		}
	}
}

func (d *derivation) pairs() {
	shared := 0
	for _, p := range d.report.Pairs {
		if p.MPS {
			shared++
		}
		for _, c := range d.report.Cuts {
			if !p.MPS && c.Model == p.A && c.Batch == p.Batch && c.Segments == d.report.segmentsOf(p.A) {
				d.say(answer(math.Abs(p.AloneAMS/c.CutMS-1) <= slower), "%s, batch %d: %.3f ms with zeros in a worker, %.3f ms with random inputs in a probe",
					p.A, p.Batch, p.AloneAMS, c.CutMS)("C9")
			}
		}
	}
	if len(d.report.Pairs) > 0 {
		d.say(answer(shared > 0), "%d pairs of %d ran under MPS", shared, len(d.report.Pairs))("C7")
	}
}

func (r *Report) segmentsOf(model string) int {
	for _, c := range r.Choices {
		if c.Model == model {
			return c.Segments
		}
	}
	return 0
}

func (d *derivation) repeat() {
	if r := d.report.Repeat; r != nil && r.Runs > 1 && r.FirstMS > 0 {
		d.say(answer(r.FirstMS <= r.P99MS*(1+slower)), "first %.3f ms, median %.3f, 99 %% %.3f", r.FirstMS, r.MedianMS, r.P99MS)("E23")
		d.say(answer(r.Spread <= wantSpread), "spread %.1f %% while MPS is asked every two seconds", 100*r.Spread)("P20", "F3")
	}
}

func (d *derivation) load() {
	first, later, n := map[string]float64{}, map[string]float64{}, map[string]float64{}
	for _, t := range d.report.Turns {
		if t.Round == 0 {
			first[t.Policy] = t.P50
			continue
		}
		later[t.Policy] += t.P50
		n[t.Policy]++
	}
	for _, p := range d.report.Policies {
		if n[p.Policy] > 0 {
			d.say(Seen, "%s: median over target %.2f in its first turn, %.2f later", p.Policy, first[p.Policy], later[p.Policy]/n[p.Policy])("C8", "C10")
		}
	}
	if s := d.report.Steps; len(s) > 0 {
		spent := 0.0
		late := false
		for _, step := range s {
			spent += step.Seconds
			late = late || step.Status == OutOfTime || step.Status == Left
		}
		d.say(answer(!late), "%d steps in %.0f s", len(s), spent)("C6")
	}
}
