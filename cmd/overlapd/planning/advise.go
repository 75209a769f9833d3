package planning

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/overlapd/overlapd/cmd/overlapd/data"
	"github.com/overlapd/overlapd/internal/cli"
	"github.com/overlapd/overlapd/training"
	"github.com/overlapd/overlapd/training/advice"
	"github.com/overlapd/overlapd/training/fit"
)

// adviseCommand answers who should share a device from measurements alone. Plan answers what should be
// loaded where, from loads and times; neither starts anything.
func adviseCommand() *cobra.Command {
	var o adviseOptions
	cmd := &cobra.Command{
		Use:   "advise",
		Short: "Recommend which services should share a device",
		Long: `Advise estimates, from measured operator groups, what each pair of models gains when
they overlap. It recommends which services share a device and what to measure next.
Use it after profile, or on CSV files. Pairs that were never measured together are
estimated from their gains with others.

With --pools it divides the services among pools of a cluster, such as Kubernetes
deployments. Each service is in one pool, and a pool has as many devices as the loads
of its services need. Advise picks the division with the fewest devices in which the
services of a pool fit the --memory of a device, and compares it with simpler ones.
The services and targets are those of --config. --out writes a kustomization for each
pool (docs/kubernetes.md) on top of --base, your own with the image, the namespace
and an autoscaler.`,
		Example: `  overlapd advise --config overlapd.toml
  overlapd advise --data pairs/
  overlapd advise --data pairs/ --solo solo.csv --size 4 --report advice.html
  overlapd advise --data pairs.csv --services web=resnet50,text=bert --load web=40,text=10
  overlapd advise --data pairs.csv --load resnet50=40,bert=40 --targets resnet50=75ms,bert=75ms
  overlapd advise --config overlapd.toml --load web=400,text=90,ads=60 --pools 2 --memory 40960 --base mine --out pools`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			// The folder to write to is checked before the measurements are read, which takes longer.
			if err := o.pools.check(cmd.Flags().Changed, o.ConfigFile()); err != nil {
				return err
			}
			ctx, stop := cli.Interruptible(cmd)
			defer stop()
			found, err := o.advise(ctx)
			if err != nil {
				return err
			}
			// The page, the text and the JSON are of one result; only the page draws the gains as a map.
			d := found.Document()
			if o.pools.out != "" {
				if err := o.pools.write(o.ConfigFile(), found); err != nil {
					return err
				}
				d.Text("wrote a kustomization of each pool, and one of all, to %s; next: kubectl apply -k %[1]s", o.pools.out)
			}
			if err := writePlan("", nil, o.report, d); err != nil {
				return err
			}
			return o.Print(cmd.OutOrStdout(), struct {
				*advice.Advice
				Commit string `json:"commit"`
			}{found, cli.Commit()}, d.WriteText)
		},
	}
	o.Groups.AddFlags(cmd)
	// Without loads advice is about pairs alone; with them also about how much devices sustain.
	f := cmd.Flags()
	f.StringVar(&o.Solo, "solo", "", "CSV file of isolated latencies to calibrate all groups to: model, batch, seq_len, min_ms")
	f.StringSliceVar(&o.services, "services", nil, "services, each NAME or NAME=MODEL; all models by default")
	f.StringSliceVar(&o.loads, "load", nil, "load of services in queries/s, each NAME=QPS")
	f.StringSliceVar(&o.targets, "targets", nil, "latency targets of services, each NAME=DURATION; with --load, for the best static split of each device")
	f.IntVar(&o.size, "size", 2, "most services on a device")
	f.IntVar(&o.devices, "devices", 0, "number of devices, 0 for as few as hold all services")
	f.StringVar(&o.report, "report", "", "write a page with a heat map to this file")
	o.pools.flags(f)
	o.Flags(f)
	return cmd
}

// adviseOptions are the flags of advise. Services, loads and targets are lists of NAME=VALUE, because a
// name may be a service's or a model's.
type adviseOptions struct {
	data.Groups
	services []string
	loads    []string
	targets  []string
	// size is the most services on a device, devices how many there are, 0 for as few as hold all.
	size    int
	devices int
	// report is the page to write.
	report string
	pools  poolOptions
}

// advise reads the groups and all that is said of services, and asks for advice.
func (o *adviseOptions) advise(ctx context.Context) (*advice.Advice, error) {
	if err := cli.CheckOut("report", o.report); err != nil {
		return nil, err
	}
	if len(o.Data) > 0 && o.ConfigFile() != "" && o.pools.count == 0 {
		return nil, errors.New("--config and --data both name measured groups: leave one of them out, or give --pools")
	}
	// With --pools the configuration has the services, and --data the measurements.
	d, operators, err := o.Read()
	if err != nil {
		return nil, err
	}
	want := advice.Options{Size: o.size, Devices: o.devices, Operators: operators, Pools: o.pools.count, Memory: o.pools.memory}
	if o.size < 1 {
		return nil, fmt.Errorf("--size is %d; give 1 or more", o.size)
	}
	if want.Services, err = o.advisedServices(d); err != nil {
		return nil, err
	}
	// Loads and targets on the command line go before those of a configuration, to try others.
	if err := cmp.Or(takeLoads(want.Services, o.loads), takeTargets(want.Services, o.targets), o.pools.take(want.Services)); err != nil {
		return nil, err
	}
	if want.Solo, err = training.ReadSoloFile(o.Solo); err != nil {
		return nil, err
	}
	// Isolated latencies of models that are in no group calibrate nothing; advice takes them as they are.
	measured := slices.DeleteFunc(slices.Clone(want.Solo), func(s training.SoloTime) bool { return d.Model(s.Model) < 0 })
	if len(measured) > 0 {
		if d, _, err = fit.Calibrate(ctx, d, measured); err != nil {
			return nil, err
		}
	}
	return advice.Advise(ctx, d, want)
}

// advisedServices reads --services, without which every model is one, or every service of a
// configuration that is to be divided into pools.
func (o *adviseOptions) advisedServices(d *training.Dataset) (list []advice.Service, err error) {
	for _, s := range o.services {
		name, model, _ := strings.Cut(s, "=")
		list = append(list, advice.Service{Name: name, Model: model})
	}
	if o.pools.count > 0 && o.ConfigFile() != "" {
		return o.pools.configure(o.ConfigFile(), d, list)
	}
	// A service without a model has the name of its model.
	for i, s := range list {
		list[i].Model = cmp.Or(s.Model, s.Name)
	}
	if len(list) == 0 {
		for _, m := range d.Models {
			list = append(list, advice.Service{Name: m.Name, Model: m.Name})
		}
	}
	return list, nil
}
