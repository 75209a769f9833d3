package training

import (
	"fmt"
	"math"
	"testing"

	"gonum.org/v1/gonum/stat/combin"
	"pgregory.net/rapid"

	"github.com/overlapd/overlapd/models"
)

// drawSampling draws any sampling that is possible.
func drawSampling(t *rapid.T) sampling {
	s := sampling{
		Spans:     rapid.IntRange(1, 5).Draw(t, "spans"),
		SoloShare: rapid.Float64Range(0, 1).Draw(t, "solo share"),
		Seed:      rapid.Uint64().Draw(t, "seed"),
	}
	choices := func(least int, name string) []int {
		return rapid.SliceOfNDistinct(rapid.IntRange(1, 64), least, 4, rapid.ID[int]).Draw(t, name)
	}
	for i := range rapid.IntRange(1, 6).Draw(t, "models") {
		s.Subjects = append(s.Subjects, subject{
			Model: Model{Name: string(rune('a' + i)), Operators: rapid.IntRange(1, 30).Draw(t, "operators")},
			Sizes: choices(1, "sizes"), SeqLens: choices(0, "sequence lengths"),
		})
	}
	return s
}

func take(p *sampler, n int) []models.Group {
	groups := make([]models.Group, n)
	for i := range groups {
		groups[i] = p.Next()
	}
	return groups
}

// counts counts by key and tells how far the counts are apart.
type counts[K comparable] map[K]int

// apart returns the difference between the most and the least frequent one of
// all keys.
func (c counts[K]) apart(all []K) int {
	least, most := math.MaxInt, 0
	for _, k := range all {
		least, most = min(least, c[k]), max(most, c[k])
	}
	return most - least
}

// Every group is one that the scheduler could form.
func TestSampledGroupsAreOfServing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawSampling(t)
		list := make([]Model, len(s.Subjects))
		for i, subject := range s.Subjects {
			list[i] = subject.Model
		}
		for _, g := range take(newSampler(s), rapid.IntRange(1, 200).Draw(t, "groups")) {
			if err := checkGroup(g, list); err != nil {
				t.Fatal(err)
			}
			completes := 0
			for _, span := range g.Spans {
				if span.End == list[span.Service].Operators {
					completes++
				}
			}
			if completes == 0 {
				t.Fatalf("nothing completes in %+v", g)
			}
			if len(g.Spans) > max(s.Spans, 1) {
				t.Fatalf("%d spans", len(g.Spans))
			}
		}
	})
}

// At any moment, no batch size of a model came more than once more often than
// another, and no sequence length of a batch size; alone and with others.
func TestSampledInputsAreEven(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawSampling(t)
		type key struct {
			solo bool
			input
		}
		sizes, all := counts[key]{}, counts[key]{}
		for _, g := range take(newSampler(s), rapid.IntRange(1, 300).Draw(t, "groups")) {
			for _, span := range g.Spans {
				in := inputOf(span)
				all[key{len(g.Spans) == 1, in}]++
				in.seqLen = 0
				sizes[key{len(g.Spans) == 1, in}]++
			}
		}
		for i := range s.Subjects {
			for _, solo := range []bool{false, true} {
				var keys []key
				for _, size := range s.Subjects[i].Sizes {
					keys = append(keys, key{solo, input{model: i, size: size}})
					var seqLens []key
					for _, l := range s.Subjects[i].seqLens() {
						seqLens = append(seqLens, key{solo, input{i, size, l}})
					}
					if d := all.apart(seqLens); d > 1 {
						t.Fatalf("model %d, size %d: sequence lengths are %d apart", i, size, d)
					}
				}
				if d := sizes.apart(keys); d > 1 {
					t.Fatalf("model %d: batch sizes are %d apart", i, d)
				}
			}
		}
	})
}

// Sets of as many models are as frequent as each other, and so are models that
// run alone. The share of those is as asked for.
func TestSampledSetsAreEven(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawSampling(t)
		n := rapid.IntRange(1, 300).Draw(t, "groups")
		found, sizes, solos := counts[string]{}, counts[int]{}, 0
		for _, g := range take(newSampler(s), n) {
			found[setOf(g)]++
			sizes[len(g.Spans)]++
			if len(g.Spans) == 1 {
				solos++
			}
		}
		bySize := map[int][]string{}
		for _, set := range s.allSets() {
			bySize[len(set)] = append(bySize[len(set)], setOf(groupOf(set)))
		}
		total := 0
		for size, sets := range bySize {
			if d := found.apart(sets); d > 1 {
				t.Fatalf("sets of %d are %d apart: %v", size, d, found)
			}
			for _, set := range sets {
				total += found[set]
			}
		}
		if total != n {
			t.Fatalf("%d of %d groups are of other sets: %v", n-total, n, found)
		}
		var several []int
		for size := range bySize {
			if size > 1 {
				several = append(several, size)
			}
		}
		if d := sizes.apart(several); len(several) > 0 && d > 1 {
			t.Fatalf("numbers of spans are %d apart: %v", d, sizes)
		}
		if want := s.SoloShare * float64(n); len(several) > 0 && math.Abs(float64(solos)-want) > 1 {
			t.Fatalf("%d groups of one span, want %v", solos, want)
		}
	})
}

// allSets returns the sets that a sampling covers.
func (s *sampling) allSets() [][]int {
	sets := combin.Combinations(len(s.Subjects), 1)
	for n := 2; n <= min(s.Spans, len(s.Subjects)); n++ {
		sets = append(sets, combin.Combinations(len(s.Subjects), n)...)
	}
	return sets
}

func groupOf(set []int) (g models.Group) {
	for _, model := range set {
		g.Spans = append(g.Spans, models.Span{Service: models.ServiceID(model)})
	}
	return g
}

func setOf(g models.Group) string {
	key := ""
	for _, s := range g.Spans {
		key += string(rune('a' + s.Service))
	}
	return key
}

// How many complete and how many start is drawn evenly, and who does is too:
// figure 9.
func TestSampledCompletionsAndStarts(t *testing.T) {
	s := sampling{Spans: 3, Seed: 7}
	for i := range 3 {
		s.Subjects = append(s.Subjects, subject{Model: Model{Name: string(rune('a' + i)), Operators: 1000}, Sizes: []int{1}})
	}
	const n = 6000
	completions, starts, who := counts[int]{}, counts[int]{}, counts[models.ServiceID]{}
	for _, g := range take(newSampler(s), n) {
		if len(g.Spans) < 3 {
			continue
		}
		complete, start := 0, 0
		for _, span := range g.Spans {
			if span.End == 1000 {
				complete++
				who[span.Service]++
			}
			if span.Start == 0 {
				start++
			}
		}
		completions[complete]++
		starts[start]++
	}
	for complete := 1; complete <= 3; complete++ {
		if got := completions[complete]; got < 900 || got > 1100 { // 1000 each
			t.Errorf("%d complete in %d groups", complete, got)
		}
	}
	for start := 0; start <= 3; start++ {
		if got := starts[start]; got < 630 || got > 870 { // 750 each
			t.Errorf("%d start in %d groups", start, got)
		}
	}
	if completions[0] != 0 || who.apart([]models.ServiceID{0, 1, 2}) > 250 { // 2000 each
		t.Errorf("%v complete, by model %v", completions, who)
	}
}

// Of too many sets to list, the models are still even.
func TestSampledModelsAreEven(t *testing.T) {
	all := make([]models.ServiceID, 64)
	for i := range all {
		all[i] = models.ServiceID(i)
	}
	found := map[int]counts[models.ServiceID]{2: {}, 3: {}, 4: {}, 5: {}}
	p := newSampler(sampling{Subjects: manySubjects(len(all)), Spans: 5})
	for range 1000 {
		g := p.Next()
		for i, s := range g.Spans {
			found[len(g.Spans)][s.Service]++
			if i > 0 && g.Spans[i-1].Service >= s.Service {
				t.Fatalf("group %+v", g)
			}
		}
		for n := 4; n <= 5; n++ {
			if d := found[n].apart(all); d > 1 {
				t.Fatalf("models in groups of %d are %d apart", n, d)
			}
		}
	}
}

func manySubjects(n int) []subject {
	subjects := make([]subject, n)
	for i := range subjects {
		subjects[i] = subject{Model: Model{Name: fmt.Sprintf("m%02d", i), Operators: 9}, Sizes: []int{1}}
	}
	return subjects
}
