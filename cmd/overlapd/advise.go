package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/overlapd/overlapd/textfile"
	"github.com/overlapd/overlapd/training"
	"github.com/overlapd/overlapd/training/advice"
)

func adviseCommand() *cobra.Command {
	var o adviseOptions
	cmd := &cobra.Command{
		Use:   "advise",
		Short: "Tell which services gain by sharing a device",
		Long: `Advise reads measured operator groups and tells what each two models gain when
they overlap, which should not share a device, how to divide services among
devices, and what to measure next. Services that were never measured together
are estimated from what they gain with others.`,
		Example: `  overlapd advise --config overlapd.toml
  overlapd advise --data pairs/
  overlapd advise --data pairs/ --solo solo.csv --size 4 --report advice.html
  overlapd advise --data pairs.csv --services web=resnet50,text=bert --load web=40,text=10`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := interruptible(cmd)
			defer stop()
			found, err := o.advise(ctx)
			if err != nil {
				return err
			}
			if o.report != "" {
				if err := textfile.Create(o.report, found.Document().WriteHTML); err != nil {
					return err
				}
			}
			return o.print(cmd.OutOrStdout(), struct {
				*advice.Advice
				Commit string `json:"commit"`
			}{found, buildCommit()}, found.Document().WriteText)
		},
	}
	o.measuredOptions.flags(cmd)
	f := cmd.Flags()
	f.StringVar(&o.solo, "solo", "", "CSV file of what whole models take alone: model, batch, seq_len, min_ms")
	f.StringSliceVar(&o.services, "services", nil, "services, each NAME or NAME=MODEL; all models if not given")
	f.StringSliceVar(&o.loads, "load", nil, "queries per second of services, each NAME=QPS")
	f.IntVar(&o.size, "size", 2, "most services of a device")
	f.IntVar(&o.devices, "devices", 0, "devices, 0 for as few as hold all services")
	f.StringVar(&o.report, "report", "", "write a page with a heat map to this file")
	o.flag(f)
	return cmd
}

type adviseOptions struct {
	measuredOptions
	output
	solo     string
	services []string
	loads    []string
	size     int
	devices  int
	report   string
}

func (o *adviseOptions) advise(ctx context.Context) (*advice.Advice, error) {
	if err := checkOut("report", o.report); err != nil {
		return nil, err
	}
	d, operators, err := o.read()
	if err != nil {
		return nil, err
	}
	want := advice.Options{Size: o.size, Devices: o.devices, Operators: operators}
	if o.size < 1 {
		return nil, fmt.Errorf("--size is %d; a device holds at least one service", o.size)
	}
	if want.Services, err = advisedServices(d, o.services, o.loads); err != nil {
		return nil, err
	}
	if want.Solo, err = readSolo(o.solo); err != nil {
		return nil, err
	}
	return advice.Advise(ctx, d, want)
}

// advisedServices reads --services, without which every model is one, and --load.
func advisedServices(d *training.Dataset, services, loads []string) ([]advice.Service, error) {
	var list []advice.Service
	for _, s := range services {
		name, model, given := strings.Cut(s, "=")
		if !given {
			model = name
		}
		list = append(list, advice.Service{Name: name, Model: model})
	}
	if len(list) == 0 {
		for _, m := range d.Models {
			list = append(list, advice.Service{Name: m.Name, Model: m.Name})
		}
	}
	for _, load := range loads {
		name, value, _ := strings.Cut(load, "=")
		qps, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return nil, fmt.Errorf("--load %s: write NAME=QPS, such as %s=20", load, name)
		}
		i := slices.IndexFunc(list, func(s advice.Service) bool { return s.Name == name })
		if i < 0 {
			return nil, fmt.Errorf("--load %s: there is no service %q", load, name)
		}
		list[i].QPS = qps
	}
	return list, nil
}
