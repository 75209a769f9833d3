package planning

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/overlapd/overlapd/cmd/overlapd/serving"
	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/internal/cli"
	"github.com/overlapd/overlapd/training/advice"
)

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

// memoryPatch sets the memory of the pods of a pool. Requests and limits are equal, since the estimate is
// of the most that they take.
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
	// One file of all pools, so that they are applied and removed together.
	all := "# All pools: kubectl apply -k on this folder.\napiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources:\n"
	for _, p := range a.Pools.Pools {
		folder := filepath.Join(o.out, p.Name)
		builds, err := o.from(folder)
		// There are two pods where the loads want two, so that one serves while the other is replaced.
		text := fmt.Sprintf(poolManifest, p.Name, strings.Join(p.Services, ", "), p.Demanded, builds, p.Devices, min(p.Devices, 2), poolGrowth*p.Devices)
		// Memory that cannot be estimated is left to the base, which has a default.
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
	// Devices and plans are of the host that the file was for, and no pod has more than one.
	for i := range c.Services {
		c.Services[i].On = nil
	}
	return c
}
