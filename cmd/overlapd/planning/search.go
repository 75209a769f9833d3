package planning

import (
	"context"
	"fmt"
	"strconv"
	"strings"
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
func (o *searched) plan(cmd *cobra.Command, solve func(context.Context) (*planning.Placement, error)) (*planning.Placement, error) {
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

// manyMiB stands for memory without a limit. Solvers need a number, and a larger one costs them digits.
const manyMiB = 1e9

// maxDevices is how many devices a plan may have. It bounds what a mistyped number allocates.
const maxDevices = 100_000

// parseDevices reads --devices: so many devices with the memory given, or those that are named.
func parseDevices(given string, most float64) (devices []planning.Device, err error) {
	if n, err := strconv.Atoi(given); err == nil {
		if n < 1 || n > maxDevices {
			return nil, fmt.Errorf("--devices is %d: give a number from 1 to %d", n, maxDevices)
		}
		return numbered("device", n, most), nil
	}
	for _, text := range strings.Split(given, ",") {
		// Speed is relative, so that the first device may be the measure of the others.
		d := planning.Device{Speed: 1}
		var memory, speed string
		var sized, with bool
		d.Name, memory, sized = strings.Cut(text, "=")
		memory, speed, with = strings.Cut(memory, ":")
		if d.Memory, err = strconv.ParseFloat(memory, 64); with && err == nil {
			d.Speed, err = strconv.ParseFloat(speed, 64)
		}
		if err != nil || !sized || d.Name == "" {
			return nil, fmt.Errorf("--devices is %q: give a number, or NAME=MEMORY or NAME=MEMORY:SPEED, with the memory in MiB, as in a=40960,b=10240:0.25", text)
		}
		devices = append(devices, d)
	}
	return devices, nil
}

// numbered returns equal devices, or sub-clusters, which nobody has given names.
func numbered(name string, n int, memory float64) (devices []planning.Device) {
	for i := range n {
		devices = append(devices, planning.Device{Name: fmt.Sprintf("%s-%d", name, i+1), Memory: memory, Speed: 1})
	}
	return devices
}
