package planning

import (
	"context"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/overlapd/overlapd/internal/cli"
	"github.com/overlapd/overlapd/internal/report"
	"github.com/overlapd/overlapd/internal/textfile"
	"github.com/overlapd/overlapd/planning"
)

// searched is what the commands have in common that search for a plan.
type searched struct {
	cli.Output
	// data has models or times, config services and devices. The plan is written to out.
	data, config, out string
	search            planning.Search
}

// flags adds the flags; the texts describe --data and --time-limit, which differ by command.
func (o *searched) flags(f *pflag.FlagSet, data, limit string) {
	f.StringVar(&o.data, "data", "", data)
	f.StringVarP(&o.config, "config", "c", "", "configuration with the services and devices")
	f.DurationVar(&o.search.Limit, "time-limit", o.search.Limit, limit)
	f.StringVarP(&o.out, "out", "o", "", "write the plan to this file")
	o.Flags(f)
}

// plan shows how long has been searched, and returns the plan with how long all of it took. Ctrl-C gives
// the plan up; to take the best one after some time is what --time-limit is for.
func (o *searched) plan(cmd *cobra.Command, from string, solve func(context.Context) (*planning.Placement, error)) (*planning.Placement, error) {
	began := time.Now()
	ctx, stop := cli.Interruptible(cmd)
	defer stop()
	show, end := cli.Bar()
	// No search knows how much is left, but all end when their time is over.
	o.search.Progress = func(doing string) { show(doing, float64(time.Since(began))/float64(o.search.Limit)) }
	p, err := solve(ctx)
	end()
	if err == nil {
		p.Seconds = time.Since(began).Seconds()
	}
	return p, err
}

// writePlan writes a plan to a file, and a page that draws it, where they are named.
func writePlan(out string, write func(path string) error, page string, d *report.Document) (err error) {
	if out != "" {
		err = write(out)
	}
	if err == nil && page != "" {
		err = textfile.Create(page, d.WriteHTML)
	}
	return err
}
