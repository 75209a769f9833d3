package reproduce

import (
	"context"

	"github.com/overlapd/overlapd/sim"
)

// smallSeeds is how many runs figure 16 has of each pair at most: with one size
// of query they hardly differ.
const smallSeeds = 3

// planSmall plans figure 16: only the least inputs, and targets of two times
// what they take alone.
func planSmall(p *plan, o *Options, s *stock, list []variant) func() *Figure {
	type cell struct {
		pair    string
		variant string
		results []*sim.Result
	}
	var cells []*cell
	for _, d := range pairs(calmLoad, s.measuredTogether()) {
		d.sizes, d.seqLens = [][]int{pairSizes[:1], pairSizes[:1]}, pairSeqLens[:1]
		for _, v := range list {
			c := &cell{d.label(), v.name, make([]*sim.Result, min(o.Seeds, smallSeeds))}
			cells = append(cells, c)
			for i := range c.results {
				p.add("figure 16", v.seconds(o.Queries), func(_ context.Context, l *lane) (err error) {
					d := d
					if d.targets, err = l.twiceSolo(s, d.models, pairSizes[0], pairSeqLens[0]); err != nil {
						return err
					}
					c.results[i], err = l.run(&trial{stock: s, deploy: &d, variant: v, arrivals: poisson(calmLoad), queries: o.Queries, seed: o.Seed + uint64(i)})
					return err
				})
			}
		}
	}
	return func() *Figure {
		f := &Figure{Figure: "16", Title: "small inputs: 99th percentile of latency over the target", Unit: "p99 / target", decimals: 2, level: 1,
			Notes: []string{"Every query has batch size 4 and sequence length 8; each service's target is two times what that takes alone on the emulated device (section 7.2). The paper shows Abacus only and gives no numbers; it says that targets of about 10 ms are kept."}}
		for _, c := range cells {
			row := Row{Case: c.pair, QPS: calmLoad, Policy: c.variant}
			row.Ours, row.Spread = (&sample{c.results}).of(tail)
			f.Rows = append(f.Rows, row)
		}
		f.addMeans()
		return f
	}
}
