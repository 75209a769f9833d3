package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/overlapd/overlapd/cmd/overlapd/serving"
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
	count    int
	memory   float64
	memories []string
	out      string
	base     string
}

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
	for _, s := range list {
		if s.Memory == 0 {
			return fmt.Errorf("service %s: its memory on a device is unknown, because its model is not here: give --service-memory %[1]s=MIB", s.Name)
		}
	}
	return nil
}

// poolManifest is the kustomization of a pool. Patches of what the base does not have, such
// as an autoscaler, change nothing.
const poolManifest = `# %[1]s serves %[2]s, whose loads demand %.2[3]f devices.
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources: [%[4]q]
nameSuffix: -%[1]s
labels:
  - pairs: {app.kubernetes.io/instance: %[1]s}
    includeSelectors: true
    fields: [{kind: PodMonitor, path: spec/selector/matchLabels, create: true}]
configMapGenerator:
  - {name: overlapd, behavior: replace, files: [overlapd.toml], options: {disableNameSuffixHash: true}}
replicas: [{name: overlapd, count: %[5]d}]
patches:
  - target: {kind: HorizontalPodAutoscaler, name: overlapd}
    patch: |-
      - {op: replace, path: /spec/minReplicas, value: %[6]d}
      - {op: replace, path: /spec/maxReplicas, value: %[7]d}
  - target: {kind: ScaledObject, name: overlapd}
    patch: |-
      - {op: replace, path: /spec/minReplicaCount, value: %[6]d}
      - {op: replace, path: /spec/maxReplicaCount, value: %[7]d}
      - {op: replace, path: /spec/triggers/0/metadata/query, value: 'sum(overlapd_devices_demanded{pod=~"overlapd-%[1]s-.+"})'}
`

// memoryPatch sets the memory of the pods of a pool.
const memoryPatch = `  - target: {kind: Deployment, name: overlapd}
    patch: |-
      - {op: add, path: /spec/template/spec/containers/0/resources/requests/memory, value: %[1]dMi}
      - {op: add, path: /spec/template/spec/containers/0/resources/limits/memory, value: %[1]dMi}
`

// write makes a folder for each pool, with a kustomization and the configuration of its
// services, and a kustomization of all pools.
func (o *poolOptions) write(path string, a *advice.Advice) error {
	c, err := unplanned(path)
	if err != nil {
		return err
	}
	all := "# All pools: kubectl apply -k on this folder.\napiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources:\n"
	for _, p := range a.Pools.Pools {
		folder := filepath.Join(o.out, p.Name)
		builds, err := o.from(folder)
		// There are two pods where the loads want two, so that one serves while the other is replaced.
		text := fmt.Sprintf(poolManifest, p.Name, strings.Join(p.Services, ", "), p.Demanded, builds, p.Devices, min(p.Devices, 2), poolGrowth*p.Devices)
		of := ofPool(c, p.Services)
		if bytes, unknown := serving.HostMemory(&of, cli.ModelPath); unknown == nil {
			text += fmt.Sprintf(memoryPatch, bytes>>20)
		}
		if err := errors.Join(err, cli.WriteNew(filepath.Join(folder, "kustomization.yaml"), []byte(text)),
			cli.WriteNew(filepath.Join(folder, "overlapd.toml"), of.BriefTOML())); err != nil {
			return err
		}
		all += "  - " + p.Name + "\n"
	}
	return cli.WriteNew(filepath.Join(o.out, "kustomization.yaml"), []byte(all))
}

// from makes a folder and returns the way from there to the base, without links, since
// kustomize follows them first.
func (o *poolOptions) from(folder string) (base string, err error) {
	if err = os.MkdirAll(folder, 0o755); err != nil {
		return "", err
	}
	var real [2]string
	for i, path := range []string{folder, o.base} {
		absolute, aerr := filepath.Abs(path)
		real[i], err = filepath.EvalSymlinks(absolute)
		if err = errors.Join(aerr, err); err != nil {
			return "", err
		}
	}
	return filepath.Rel(real[0], real[1])
}

// ofPool returns a configuration with some of its services, for a pod that has one device
// and the ports of deploy/kubernetes.
func ofPool(c config.Config, services []string) config.Config {
	c.StateDir, c.Plan, c.Devices = "", "", nil
	c.Listen, c.GRPCListen = "0.0.0.0:8000", "0.0.0.0:8001"
	c.Services = slices.DeleteFunc(slices.Clone(c.Services), func(s config.Service) bool { return !slices.Contains(services, s.Name) })
	for i := range c.Services {
		c.Services[i].On = nil
	}
	return c
}
