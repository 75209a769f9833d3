package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/overlapd/overlapd/cmd/overlapd/cutcost"
	"github.com/overlapd/overlapd/cmd/overlapd/gpucheck"
)

// gpuCheckOptions are the flags of gpu-check. What is not given is the device's
// own default.
type gpuCheckOptions struct {
	device   string
	gpu      string
	models   []string
	services []string
	batches  []int
	cuts     []int
	budget   time.Duration
	spent    time.Duration
	profile  time.Duration
	groups   int
	load     time.Duration
	factor   float64
	out      string
	json     bool
}

// gpuCheckCommand is what make gpu-check runs from a bundle.
func gpuCheckCommand() *cobra.Command {
	var o gpuCheckOptions
	cmd := &cobra.Command{
		Use:    "gpu-check",
		Short:  "Find out what overlapd is worth on this machine's GPU",
		Hidden: true,
		Long: `Gpu-check compares outputs with the CPU's, measures what cutting costs and what
running two services together gains, profiles, fits a predictor, and puts load on
each policy. It takes less than eight minutes, also if a step hangs, and writes
gpu-check.json, gpu-check.html and gpu-check.md, anew every few seconds and when it
is told to end. What is wanted of a GPU is called PASS or MISS, with the number and
the limit. With --device cpu it rehearses: every step runs with small models, and
says nothing about a GPU.`,
		Example: `  overlapd gpu-check --out results
  overlapd gpu-check --device cpu --budget 3m --out rehearsal`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd) },
	}
	cmd.AddCommand(gpuClientCommand())
	f := cmd.Flags()
	f.StringVar(&o.device, "device", cutcost.CUDA, "cuda, or cpu for a rehearsal")
	f.StringVar(&o.gpu, "gpu", "", "which GPU: index, UUID or PCI address")
	f.StringSliceVar(&o.models, "model", nil, "models whose outputs are compared: names of the zoo or ONNX files")
	f.StringSliceVar(&o.services, "service", nil, "three models that run together")
	f.IntSliceVar(&o.batches, "batch", nil, "batch sizes of cutting and of pairs; 1 must be among them")
	f.IntSliceVar(&o.cuts, "cut", nil, "operators that models are cut into, 0 for one at every node")
	f.DurationVar(&o.budget, "budget", 0, "time of all steps together")
	f.DurationVar(&o.spent, "spent", 0, "time that went before, as on unpacking: a part of the budget")
	f.DurationVar(&o.profile, "profile", 0, "time of measuring groups, at most")
	f.IntVar(&o.groups, "groups", 0, "groups that are measured, at most")
	f.DurationVar(&o.load, "load", 0, "time of load, all policies together")
	f.Float64Var(&o.factor, "load-factor", 0, "work offered: 1 keeps the device busy one batch after another")
	f.StringVar(&o.out, "out", "gpu-check-results", "folder of the results")
	f.BoolVar(&o.json, "json", false, "print the report as one JSON object at the end")
	return cmd
}

// gpuClientCommand is a process that hardly uses a GPU, to see what MPS makes of
// it.
func gpuClientCommand() *cobra.Command {
	var gpu string
	cmd := &cobra.Command{
		Use:   "client",
		Short: "Use the GPU a little, as told on standard input (started by gpu-check)",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return gpucheck.RunClient("", gpu, cmd.InOrStdin(), cmd.OutOrStdout())
		},
	}
	cmd.Flags().StringVar(&gpu, "gpu", "", "which GPU: ordinal or UUID")
	return cmd
}

func (o *gpuCheckOptions) run(cmd *cobra.Command) error {
	began := time.Now()
	c, err := o.options()
	if err != nil {
		return err
	}
	c.Spent = o.spent + time.Since(began) // models of the zoo had to be built
	c.Budget -= c.Spent
	c.Progress = func(doing string) { fmt.Fprintln(cmd.ErrOrStderr(), doing) }
	ctx, stop := interruptible(cmd)
	defer stop()
	report, err := gpucheck.Run(ctx, c)
	if err != nil {
		return err
	}
	if o.json {
		return printJSON(cmd.OutOrStdout(), report)
	}
	return o.print(cmd.OutOrStdout(), report)
}

func (o *gpuCheckOptions) print(w io.Writer, r *gpucheck.Report) error {
	if r.Rehearsal {
		fmt.Fprintln(w, "Rehearsal on the CPU: nothing here is about a GPU.")
	}
	for _, v := range r.Verdicts {
		fmt.Fprintf(w, "%-12s  %s: %s (wanted: %s)\n", v.Answer, v.What, firstOf(v.Got, "nothing"), v.Want)
	}
	_, err := fmt.Fprintf(w, "%s\n", filepath.Join(o.out, gpucheck.PageName))
	return err
}

// options puts the flags over the defaults of the device, and finds the models.
func (o *gpuCheckOptions) options() (c gpucheck.Options, err error) {
	c = gpucheck.DefaultOptions()
	if o.device == cutcost.CPU {
		c = gpucheck.Rehearsal()
	}
	c.Device = o.device
	over(&c.GPU, o.gpu)
	over(&c.Budget, o.budget)
	over(&c.Profile, o.profile)
	over(&c.Groups, o.groups)
	over(&c.Load, o.load)
	over(&c.LoadFactor, o.factor)
	overList(&c.Batches, o.batches)
	overList(&c.Granularities, o.cuts)
	overModels(&c.Models, o.models)
	overModels(&c.Services, o.services)
	for _, list := range [][]gpucheck.Model{c.Models, c.Services} {
		for i := range list {
			if list[i].Path, err = modelPath(list[i].Name); err != nil {
				return c, err
			}
		}
	}
	self, err := os.Executable()
	if err != nil {
		return c, err
	}
	if c.CacheDir, err = cacheDir("optimized"); err != nil {
		return c, err
	}
	c.Command, c.Out, c.Machine, c.Version, c.Commit = []string{self}, o.out, cpuName(), version, buildCommit()
	return c, nil
}

// over sets what was given.
func over[T comparable](to *T, given T) {
	var none T
	if given != none {
		*to = given
	}
}

func overList(to *[]int, given []int) {
	if len(given) > 0 {
		*to = given
	}
}

func overModels(to *[]gpucheck.Model, names []string) {
	if len(names) == 0 {
		return
	}
	*to = nil
	for _, n := range names {
		*to = append(*to, gpucheck.Model{Name: n})
	}
}
