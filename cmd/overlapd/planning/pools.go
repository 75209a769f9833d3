package planning

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/internal/cli"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/segments/wire"
	"github.com/overlapd/overlapd/training"
	"github.com/overlapd/overlapd/training/advice"
)

// poolGrowth is how many times the devices that a pool takes its autoscaler may give it.
const poolGrowth = 2

// poolOptions are the flags of advise that are about pools of a cluster.
type poolOptions struct {
	// count is the number of pools, 0 if services are not divided.
	count int
	// memory is that of a device in MiB, memories what services need of it, each NAME=MIB.
	memory   float64
	memories []string
	// out is the new folder, base the kustomization that those in it build on.
	out  string
	base string
}

// flags adds the flags.
func (o *poolOptions) flags(f *pflag.FlagSet) {
	f.IntVar(&o.count, "pools", 0, "number of pools of equal devices to divide the services among, such as Kubernetes deployments")
	f.Float64Var(&o.memory, "memory", 0, "memory of each device of a pool in MiB, unlimited by default")
	f.StringSliceVar(&o.memories, "service-memory", nil, "memory of services on a device in MiB, each NAME=MIB; by default estimated from the models of --config")
	f.StringVarP(&o.out, "out", "o", "", "new folder for the kustomizations of the pools")
	f.StringVar(&o.base, "base", filepath.Join("deploy", "kubernetes", "overlays", "dra"), "kustomization that the pools build on")
}

// check refuses options that mean nothing, or nothing together.
func (o *poolOptions) check(changed func(string) bool, config string) error {
	for _, name := range []string{"memory", "service-memory", "out", "base"} {
		if changed(name) && !changed("pools") {
			return fmt.Errorf("--%s needs --pools: give the number of pools", name)
		}
	}
	// Everything that kustomize would refuse later is refused here, before the division is calculated.
	base, _ := filepath.Abs(o.base)
	out, _ := filepath.Abs(o.out)
	_, missing := os.Stat(filepath.Join(base, "kustomization.yaml"))
	there, err := os.ReadDir(out)
	switch {
	case changed("pools") && o.count < 1:
		return fmt.Errorf("--pools is %d: give 1 or more", o.count)
	case changed("pools") && (changed("size") || changed("devices")):
		return errors.New("--pools sets no limit on services or devices: leave out --size and --devices")
	case changed("memory") && !(o.memory > 0 && o.memory <= manyMiB):
		return fmt.Errorf("--memory is %v: give the memory of a device in MiB", o.memory)
	case o.out == "":
		return nil
	case config == "":
		return errors.New("--out needs --config, the configuration of all services, which is divided among the pools")
	case missing != nil:
		return fmt.Errorf("--base %s has no kustomization.yaml: name your own folder, or an overlay of deploy/kubernetes", o.base)
	case strings.HasPrefix(out, base+string(filepath.Separator)):
		return fmt.Errorf("--out %s is inside --base %s, which kustomize rejects as a cycle: name a folder outside it", o.out, o.base)
	case len(there) > 0 || err != nil && !os.IsNotExist(err):
		return fmt.Errorf("--out %s is not empty: name a new folder, or remove it first", o.out)
	}
	return nil
}

// configure returns the services of a configuration, or those of them that are listed, with
// what it says of them. What was measured elsewhere may have the name of a model's file.
func (o *poolOptions) configure(path string, d *training.Dataset, list []advice.Service) ([]advice.Service, error) {
	// Names on the command line select services; without any all are divided.
	c, err := unplanned(path)
	if err != nil {
		return nil, err
	}
	if len(list) == 0 {
		for _, s := range c.Services {
			list = append(list, advice.Service{Name: s.Name})
		}
	}
	for i := range list {
		to, s := &list[i], c.Service(list[i].Name)
		if s == nil {
			return nil, fmt.Errorf("%s has no service %q; its services are %s", path, to.Name, strings.Join(c.Names(), ", "))
		}
		// What was measured elsewhere is called by the file, what a daemon measured by the service.
		file := strings.TrimSuffix(filepath.Base(s.Model[strings.Index(s.Model, ":")+1:]), ".onnx")
		if to.Model = cmp.Or(to.Model, s.Name); d.Model(to.Model) < 0 && d.Model(file) >= 0 {
			to.Model = file
		}
		if to.Target, to.MaxBatch = s.Target, s.MaxBatch; o.memory > 0 {
			to.Memory = expectedMiB(&c, s)
		}
	}
	return list, nil
}

// expectedMiB returns what a service is given of a device's memory, or what its model is
// expected to need, 0 if the model is not here.
func expectedMiB(c *config.Config, s *config.Service) float64 {
	// A limit that is set is what the service may take, whatever the model needs.
	bytes := cmp.Or(s.MPS.PinnedMemory, c.CUDA.MemoryLimit)
	if path, err := cli.ModelPath(s.Model); bytes == 0 && err == nil {
		if f, err := models.Open(path); err == nil {
			bytes = wire.ExpectDeviceMemory(f, s.Cut, s.MaxBatch).Sum()
			_ = f.Close() // it was read
		}
	}
	return float64(bytes) / (1 << 20)
}

// take reads --service-memory, and refuses services of which nothing is known then.
func (o *poolOptions) take(list []advice.Service) error {
	if err := takeValues(list, "service-memory", "NAME=MIB", "1500", o.memories, func(s *advice.Service, value string) bool {
		return positive(value, &s.Memory)
	}); err != nil || o.memory == 0 {
		return err
	}
	// A service of unknown size would fit anywhere, and be evicted later.
	for _, s := range list {
		if s.Memory == 0 {
			return fmt.Errorf("service %s: its memory on a device is unknown, because its model is not here: give --service-memory %[1]s=MIB", s.Name)
		}
	}
	return nil
}

// takeValues reads a flag with a value for each of some services. A value that is wrong is told before a
// name that is.
func takeValues(list []advice.Service, flag, form, example string, values []string, take func(s *advice.Service, value string) bool) error {
	for _, text := range values {
		name, value, _ := strings.Cut(text, "=")
		i := slices.IndexFunc(list, func(s advice.Service) bool { return s.Name == name })
		to := new(advice.Service) // so that the value of an unknown name is read, too
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

// positive reads a number from 0. A load of 0 is allowed: the service is there, and nobody asks.
func positive(text string, to *float64) bool {
	v, err := strconv.ParseFloat(text, 64)
	*to = v
	return err == nil && v >= 0 && !math.IsInf(v, 0)
}
