package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/overlapd/overlapd/cmd/overlapd/serving"
	"github.com/overlapd/overlapd/daemon"
	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/internal/cli"
	"github.com/overlapd/overlapd/internal/report"
	"github.com/overlapd/overlapd/internal/textfile"
	"github.com/overlapd/overlapd/training"
	"github.com/overlapd/overlapd/training/advice"
	"github.com/overlapd/overlapd/training/fit"
)

// stateOptions are the flags that name the state file of a command.
type stateOptions struct {
	dir    string
	config string
}

func (o *stateOptions) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&o.dir, "state", "", "state folder, instead of the configuration's or the default")
	cli.ConfigFlag(cmd, &o.config, "configuration file that names the state folder", "state", "data")
}

// How a state file is opened. Only to read it, a daemon may have it.
var (
	reading  = daemon.ReadState
	changing = func(dir string, check []string) (*daemon.State, error) { return daemon.OpenState(dir, true, check) }
	making   = func(dir string, check []string) (*daemon.State, error) { return daemon.OpenState(dir, false, check) }
)

// use calls do with the measurements of the state file.
func (o *stateOptions) use(how func(dir string, check []string) (*daemon.State, error), do func(*training.Store) error) error {
	return o.open(how, func(s *daemon.State) error { return do(s.Datasets()) })
}

// open calls do with the state file.
func (o *stateOptions) open(how func(dir string, check []string) (*daemon.State, error), do func(*daemon.State) error) error {
	dir := cmp.Or(o.dir, config.Default().StateDir)
	if o.dir == "" && o.config != "" {
		c, err := config.Load(o.config)
		if err != nil {
			return err
		}
		dir = c.StateDir
	}
	file, err := how(dir, serving.CheckState())
	if err != nil {
		return err
	}
	return errors.Join(do(file), file.Close())
}

func datasetImportCommand() *cobra.Command {
	var state stateOptions
	var device string
	var out cli.Output
	cmd := &cobra.Command{
		Use:   "import PATH...",
		Short: "Store measured groups from CSV files in the state file",
		Long: `Import adds the rows of CSV files, or of all .csv files of folders, to the state file.
Use it to train on measurements from another machine or from the Abacus authors.

Rows that are already stored are skipped, so importing a file twice changes nothing.
If any file has a fault, nothing is stored. docs/dataset.md describes the format;
files of the original Abacus system are accepted unchanged.`,
		Example: `  overlapd dataset import pairs/ --device A100
  overlapd dataset import bert_resnet50.csv --state /var/lib/overlapd`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, paths []string) error {
			d, err := training.ReadPath(paths...)
			if err != nil {
				return err
			}
			d.Device = device
			return state.use(making, func(store *training.Store) error {
				done, err := importDataset(store, d)
				if err != nil {
					return err
				}
				return out.Print(cmd.OutOrStdout(), done, func(w io.Writer) error {
					_, err := fmt.Fprintf(w, "%s of %s read, %d stored; already stored: %d\n", report.Count(done.Rows, "row"), report.Count(len(done.Models), "model"), done.Rows-done.Known, done.Known)
					return err
				})
			})
		},
	}
	state.flags(cmd)
	cmd.Flags().StringVar(&device, "device", "", "device on which the groups were measured, in words")
	out.Flags(cmd.Flags())
	return cmd
}

// imported is the result of an import. Of the Rows, Known were stored before.
type imported struct {
	Device string           `json:"device"`
	Models []training.Model `json:"models"`
	Rows   int              `json:"rows"`
	Known  int              `json:"known"`
}

// importDataset stores the rows that are not stored yet. An interrupt leaves whole rows
// behind, which the next import skips.
func importDataset(store *training.Store, d *training.Dataset) (imported, error) {
	anyCut := slices.Clone(d.Models) // what was imported before may have had longer spans
	for i := range anyCut {
		anyCut[i].Operators = training.MaxOperators
	}
	stored, err := store.Dataset(d.Device, anyCut)
	if err != nil {
		return imported{}, err
	}
	fresh := d.Without(stored)
	show, end := cli.Bar()
	defer end()
	for rows := fresh.Rows; len(rows) > 0; {
		n := min(2000, len(rows)) // of a transaction
		if err := store.Append(&training.Dataset{Device: d.Device, Models: d.Models, Rows: rows[:n]}); err != nil {
			return imported{}, err
		}
		rows = rows[n:]
		show("importing", 1-float64(len(rows))/float64(len(fresh.Rows)))
	}
	return imported{Device: d.Device, Models: d.Models, Rows: len(d.Rows), Known: len(d.Rows) - len(fresh.Rows)}, nil
}

func datasetDeleteCommand() *cobra.Command {
	var state stateOptions
	cmd := &cobra.Command{
		Use:   "delete SET...",
		Short: "Delete sets of measured groups",
		Long: `Delete removes all rows of the given sets from the state file; dataset show lists the
sets. Exported files are not touched.`,
		Example: `  overlapd dataset delete 0a1b2c3d4e5f`,
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, ids []string) error {
			return state.use(changing, func(store *training.Store) error {
				for _, id := range ids {
					if err := store.Delete(id); err != nil {
						return fmt.Errorf("%w; see overlapd dataset show", err)
					}
				}
				return nil
			})
		},
	}
	state.flags(cmd)
	return cmd
}

func datasetExportCommand() *cobra.Command {
	var o exportOptions
	cmd := &cobra.Command{
		Use:   "export",
		Short: "Write the measured groups of the state file as CSV",
		Long: `Export writes measured groups as CSV: one file for each set of models in a folder, or
one file if --out ends in .csv, or standard output if --out is "-". Use it to move
measurements to another machine or to look at them with other tools. Existing files
are not overwritten. docs/dataset.md describes the format.`,
		Example: `  overlapd dataset export --out measured/
  overlapd dataset export --out - --models bert,resnet50`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.state.use(reading, func(store *training.Store) error { return o.export(store, cmd.OutOrStdout()) })
		},
	}
	o.state.flags(cmd)
	f := cmd.Flags()
	f.StringVarP(&o.out, "out", "o", "", "folder, created if needed; or a file that ends in .csv; or - for standard output")
	f.StringVar(&o.device, "device", "", "export only groups measured on this device")
	f.StringSliceVar(&o.models, "models", nil, "export only groups of these models")
	_ = cmd.MarkFlagRequired("out")
	return cmd
}

type exportOptions struct {
	state  stateOptions
	out    string
	device string
	models []string
}

func (o *exportOptions) export(store *training.Store, stdout io.Writer) error {
	sets, err := chooseSets(store, o.device, o.models)
	if err != nil {
		return err
	}
	if o.out == "-" || strings.EqualFold(filepath.Ext(o.out), ".csv") {
		return exportTo(o.out, store, sets, stdout)
	}
	if err := os.MkdirAll(o.out, 0o755); err != nil {
		return err
	}
	for i := range sets {
		path := filepath.Join(o.out, exportName(sets, i))
		if err := exportTo(path, store, sets[i:i+1], stdout); err != nil {
			return err
		}
		fmt.Fprintln(stdout, path)
	}
	return nil
}

// exportTo writes sets of one device together, as a file does not name it.
func exportTo(path string, store *training.Store, sets []training.Summary, stdout io.Writer) error {
	parts := make([]*training.Dataset, len(sets))
	for i, set := range sets {
		if set.Device != sets[0].Device {
			return fmt.Errorf("groups of %s and of %s cannot share a file; name one with --device", cmp.Or(sets[0].Device, "unknown"), cmp.Or(set.Device, "unknown"))
		}
		var err error
		if parts[i], err = store.Set(set.ID); err != nil {
			return err
		}
	}
	d, err := training.Merge(parts...)
	if err != nil {
		return err
	}
	if path == "-" {
		return training.WriteCSV(stdout, d)
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if errors.Is(err, os.ErrExist) {
		return fmt.Errorf("%s already exists; remove it or choose another --out", path)
	}
	if err != nil {
		return err
	}
	if err := errors.Join(training.WriteCSV(file, d), file.Close()); err != nil {
		return errors.Join(err, os.Remove(path))
	}
	return nil
}

// chooseSets returns the sets of a device and of models, of any where they are empty.
func chooseSets(store *training.Store, device string, models []string) ([]training.Summary, error) {
	all, err := store.List()
	if err != nil {
		return nil, err
	}
	sets := slices.DeleteFunc(all, func(s training.Summary) bool {
		unwanted := func(m training.Model) bool { return !slices.Contains(models, m.Name) }
		return device != "" && s.Device != device || len(models) > 0 && slices.ContainsFunc(s.Models, unwanted)
	})
	if len(sets) == 0 {
		return nil, errors.New("no measured group matches; overlapd dataset show lists what there is")
	}
	return sets, nil
}

// exportName names a file by the models of the set, and its ID if others have the same.
func exportName(sets []training.Summary, i int) string {
	base := fileName(&sets[i])
	for j := range sets {
		if j != i && strings.EqualFold(fileName(&sets[j]), base) {
			return base + "-" + sets[i].ID + ".csv"
		}
	}
	return base + ".csv"
}

// fileName joins the names of the models, made fit for a file system.
func fileName(s *training.Summary) string {
	const longest = 200
	name := strings.Map(func(r rune) rune {
		if strings.ContainsRune(`/\:*?"<>| `, r) {
			return '-'
		}
		return r
	}, strings.ReplaceAll(s.Name(), " + ", "_"))
	if name = strings.TrimLeft(name, "."); name == "" || len(name) > longest {
		return s.ID
	}
	return name
}

func datasetShowCommand() *cobra.Command {
	var state stateOptions
	var out cli.Output
	cmd := &cobra.Command{
		Use:   "show",
		Short: "Show measured groups and trained predictors",
		Example: `  overlapd dataset show
  overlapd dataset show --config overlapd.toml --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return state.use(reading, func(store *training.Store) error {
				shown, err := showStore(store)
				if err != nil {
					return err
				}
				return out.Print(cmd.OutOrStdout(), shown, shown.writeText)
			})
		},
	}
	state.flags(cmd)
	out.Flags(cmd.Flags())
	return cmd
}

// shown is what a state file has for training, the newest predictor first.
type shown struct {
	Rows       int                `json:"rows"`
	Sets       []training.Summary `json:"sets"`
	Predictors []shownPredictor   `json:"predictors"`
}

// shownPredictor sums up a predictor file. Its error is in percent.
type shownPredictor struct {
	Created  time.Time `json:"created"`
	Device   string    `json:"device"`
	Recipe   string    `json:"recipe"`
	Models   []string  `json:"models"`
	Rows     int       `json:"rows"`
	MAPETest float64   `json:"mape_test"`
}

func showStore(store *training.Store) (shown, error) {
	s := shown{Sets: []training.Summary{}, Predictors: []shownPredictor{}}
	sets, err := store.List()
	if err != nil {
		return s, err
	}
	for _, set := range sets {
		s.Rows += set.Rows
		s.Sets = append(s.Sets, set)
	}
	files, err := store.Predictors()
	for _, f := range files {
		p := shownPredictor{Created: f.Created, Device: f.Device, Recipe: f.Recipe, Rows: f.Rows, MAPETest: f.Test.MAPE}
		for _, m := range f.Features.Models {
			p.Models = append(p.Models, m.Name)
		}
		s.Predictors = append(s.Predictors, p)
	}
	return s, err
}

func (s shown) writeText(w io.Writer) error {
	var d report.Document
	t := report.NewTable("SET", "DEVICE", "MODELS", "ROWS", "BATCH SIZES", "SEQUENCES", "MEDIAN", "ON DEVICE", "SPREAD")
	for _, set := range s.Sets {
		took := time.Duration(set.Median * float64(time.Microsecond)).Round(time.Microsecond)
		t.Rowf("%s\t%s\t%s\t%d\t%s\t%s\t%v\t%s\t%.1f %%", set.ID, cmp.Or(set.Device, "unknown"), set.Name(), set.Rows,
			report.Numbers(set.Sizes), report.Numbers(set.SeqLens), took, report.OrDash("%.1f %%", 100*set.Share), 100*set.Spread)
	}
	t.Rowf("\t\t%s\t%d", report.Count(len(s.Sets), "set"), s.Rows)
	d.Table(t)
	t = report.NewTable("PREDICTOR", "DEVICE", "MODELS", "ROWS", "RECIPE", "ERROR")
	for _, p := range s.Predictors {
		t.Rowf("%s\t%s\t%s\t%d\t%s\t%.1f %%", p.Created.UTC().Format(time.DateTime), cmp.Or(p.Device, "unknown"),
			strings.Join(p.Models, ", "), p.Rows, p.Recipe, p.MAPETest)
	}
	d.Table(t)
	return d.WriteText(w)
}

// measuredOptions are the flags that choose measured groups: those of CSV files, or
// those that the state file holds of one device.
type measuredOptions struct {
	cli.Measured
	state stateOptions
}

// flags are for commands that read CSV files or the state file.
func (o *measuredOptions) flags(cmd *cobra.Command) {
	o.state.flags(cmd)
	o.FileFlags(cmd)
	cmd.Flags().Lookup("data").Usage += ", instead of the state file"
	cmd.Flags().Lookup("device").Usage += "; or use only the groups of the state file from this device"
	cmd.MarkFlagsMutuallyExclusive("data", "state")
}

// read reads the files, or what the state file holds of one device together with
// the solo times of its operators. The state file is closed before it returns, so
// that a daemon may start.
func (o *measuredOptions) read() (d *training.Dataset, operators map[string][]training.OperatorTimes, err error) {
	if d, err = o.ReadFiles(); d != nil || err != nil {
		return d, nil, err
	}
	err = o.state.use(reading, func(store *training.Store) error {
		sets, err := chooseSets(store, o.Device, nil)
		if err != nil {
			return err
		}
		device := sets[0].Device
		for _, s := range sets {
			if s.Device != device {
				return fmt.Errorf("there are groups of %s and of %s; name one with --device", cmp.Or(device, "unknown"), cmp.Or(s.Device, "unknown"))
			}
		}
		if d, err = store.Dataset(device, nil); err == nil {
			operators, err = store.Operators(d.Device, d.Models)
		}
		return err
	})
	return d, operators, err
}

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
			if err := o.pools.check(cmd.Flags().Changed, o.state.config); err != nil {
				return err
			}
			ctx, stop := cli.Interruptible(cmd)
			defer stop()
			found, err := o.advise(ctx)
			if err != nil {
				return err
			}
			d := found.Document()
			if o.pools.out != "" {
				if err := o.pools.write(o.state.config, found); err != nil {
					return err
				}
				d.Text("wrote a kustomization of each pool, and one of all, to %s; next: kubectl apply -k %[1]s", o.pools.out)
			}
			if o.report != "" {
				if err := textfile.Create(o.report, d.WriteHTML); err != nil {
					return err
				}
			}
			return o.Print(cmd.OutOrStdout(), struct {
				*advice.Advice
				Commit string `json:"commit"`
			}{found, cli.Commit()}, d.WriteText)
		},
	}
	o.measuredOptions.flags(cmd)
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

type adviseOptions struct {
	measuredOptions
	services []string
	loads    []string
	targets  []string
	size     int
	devices  int
	report   string
	pools    poolOptions
}

func (o *adviseOptions) advise(ctx context.Context) (*advice.Advice, error) {
	if err := cli.CheckOut("report", o.report); err != nil {
		return nil, err
	}
	if len(o.Data) > 0 && o.state.config != "" && o.pools.count == 0 {
		return nil, errors.New("--config and --data both name measured groups: leave one of them out, or give --pools")
	}
	d, operators, err := o.read()
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
	if err := cmp.Or(takeLoads(want.Services, o.loads), takeTargets(want.Services, o.targets), o.pools.take(want.Services)); err != nil {
		return nil, err
	}
	if want.Solo, err = training.ReadSoloFile(o.Solo); err != nil {
		return nil, err
	}
	measured := slices.DeleteFunc(slices.Clone(want.Solo), func(s training.SoloTime) bool { return d.Model(s.Model) < 0 })
	if len(measured) > 0 {
		if d, _, err = fit.Calibrate(ctx, d, measured); err != nil {
			return nil, err
		}
	}
	return advice.Advise(ctx, d, want)
}

// takeValues reads a flag with a value for each of some services.
func takeValues(list []advice.Service, flag, form, example string, values []string, take func(s *advice.Service, value string) bool) error {
	for _, text := range values {
		name, value, _ := strings.Cut(text, "=")
		i := slices.IndexFunc(list, func(s advice.Service) bool { return s.Name == name })
		to := new(advice.Service)
		if i >= 0 {
			to = &list[i]
		}
		switch {
		case !take(to, value):
			return fmt.Errorf("--%s %s: write %s, such as %s=%s", flag, text, form, name, example)
		case i < 0:
			return fmt.Errorf("--%s %s: there is no service %q", flag, text, name)
		}
	}
	return nil
}

// takeTargets reads --targets.
func takeTargets(list []advice.Service, targets []string) error {
	return takeValues(list, "targets", "NAME=DURATION", "75ms", targets, func(s *advice.Service, value string) (ok bool) {
		lasts, err := time.ParseDuration(value)
		s.Target = lasts
		return err == nil && lasts > 0
	})
}

// takeLoads reads --load.
func takeLoads(list []advice.Service, loads []string) error {
	return takeValues(list, "load", "NAME=QPS", "20", loads, func(s *advice.Service, value string) bool { return positive(value, &s.QPS) })
}

// positive reads a number from 0.
func positive(text string, to *float64) bool {
	v, err := strconv.ParseFloat(text, 64)
	*to = v
	return err == nil && v >= 0 && !math.IsInf(v, 0)
}

// advisedServices reads --services, without which every model is one, or every service of a
// configuration that is to be divided into pools.
func (o *adviseOptions) advisedServices(d *training.Dataset) (list []advice.Service, err error) {
	for _, s := range o.services {
		name, model, _ := strings.Cut(s, "=")
		list = append(list, advice.Service{Name: name, Model: model})
	}
	if o.pools.count > 0 && o.state.config != "" {
		return o.pools.configure(o.state.config, d, list)
	}
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
