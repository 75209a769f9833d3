package triton

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/daemon/rpc/inference"
	"github.com/overlapd/overlapd/models"
)

// defaultFile is the file of a version unless the configuration names another one.
const defaultFile = "model.onnx"

// model is one model of a repository while it is read.
type model struct {
	*repository
	name      string
	c         *inference.ModelConfig
	line      int // of a fault, 0 if it is not known
	notes     []string
	service   config.Service
	hasTarget bool
	cpu       bool // all its instances are to be on the CPU
}

func (m *model) note(format string, args ...any) {
	m.notes = append(m.notes, fmt.Sprintf(format, args...))
}

// read fills in the service, but for its target where none is configured.
func (m *model) read() error {
	text, err := m.readConfig(m.name)
	if err != nil {
		return err
	}
	var others []field
	if m.c, others, m.line, err = parse(text); err != nil {
		return err
	}
	return m.translate(others)
}

// translate fills in the service by the configuration that was read.
func (m *model) translate(others []field) error {
	if err := m.checkSupport(others); err != nil {
		return err
	}
	if m.c.Name != "" && m.c.Name != m.name {
		return fmt.Errorf("its configuration has the name %q: name folder and model alike, or leave the name out", m.c.Name)
	}
	version, err := m.version()
	if err != nil {
		return err
	}
	file, err := m.modelFile(filepath.Join(m.name, version), cmp.Or(m.c.DefaultModelFilename, defaultFile))
	if err != nil {
		return m.otherFormat(version, err)
	}
	m.service.Name, m.service.Model = m.name, m.path(file)
	m.batching()
	m.instances()
	m.parameters()
	return m.compare(m.service.Model)
}

// checkSupport returns why overlapd cannot serve the model, and notes what has no
// effect on how it does.
func (m *model) checkSupport(others []field) error {
	c := m.c
	switch runs := cmp.Or(c.Backend, strings.TrimSuffix(c.Platform, "_onnx")); runs {
	case "", "onnxruntime":
	case "ensemble":
		return unsupported(essential["ensemble_scheduling"])
	default:
		return unsupported(fmt.Sprintf("backend %q: overlapd runs ONNX models, export it as one", runs))
	}
	if c.ModelTransactionPolicy.GetDecoupled() {
		return unsupported("model_transaction_policy: decoupled, but every request has one answer here")
	}
	for _, f := range others {
		if why := essential[f.name]; why != "" {
			return unsupported(fmt.Sprintf("%s (line %d): %s", f.name, f.line, why))
		}
		if slices.Contains(ineffective, f.name) {
			m.note("%s (line %d) has no effect", f.name, f.line)
		} else {
			m.note("%s (line %d) is unknown and has no effect%s", f.name, f.line, config.Guess("", f.name, fieldNames()))
		}
	}
	for _, t := range c.Input {
		if t.AllowRaggedBatch {
			return unsupported(fmt.Sprintf("allow_ragged_batch of %q: queries of different shapes are not merged", t.Name))
		}
	}
	return nil
}

// version returns the version that is served: the highest of those that the policy
// allows.
func (m *model) version() (string, error) {
	there, others, err := m.versions(m.name)
	if err != nil {
		return "", err
	}
	if len(others) > 0 {
		m.note("no versions, since their names are no numbers from 1 on: %s", strings.Join(others, ", "))
	}
	if len(there) == 0 {
		return "", fmt.Errorf("it has no version: put its file to %s", m.path(m.name, "1", defaultFile))
	}
	wanted := there
	switch p := m.c.VersionPolicy.GetPolicyChoice().(type) {
	case *inference.ModelVersionPolicy_Specific_:
		wanted = slices.DeleteFunc(slices.Clone(there), func(v int64) bool { return !slices.Contains(p.Specific.Versions, v) })
		if len(wanted) == 0 {
			return "", fmt.Errorf("version_policy wants %v, and there are %v", p.Specific.Versions, there)
		}
	case *inference.ModelVersionPolicy_Latest_:
		wanted = there[:min(int64(len(there)), max(int64(p.Latest.NumVersions), 1))]
	case nil:
		wanted = there[:1]
	}
	if len(wanted) > 1 {
		m.note("version_policy: version %d is served and not %v: to serve another one, give it a folder of its own", wanted[0], wanted[1:])
	}
	if wanted[0] != 1 {
		m.note("clients see version %d as version 1", wanted[0])
	}
	return strconv.FormatInt(wanted[0], 10), nil
}

// otherFormat returns why there is no ONNX file, where that is of a model which says
// nothing of its backend.
func (m *model) otherFormat(version string, err error) error {
	if !errors.Is(err, fs.ErrNotExist) || m.c.Backend != "" || m.c.Platform != "" || m.c.DefaultModelFilename != "" {
		return err
	}
	if others, _ := fs.Glob(m.root.FS(), filepath.Join(m.name, version, "model.*")); len(others) > 0 {
		return unsupported(fmt.Sprintf("it is a %s: overlapd runs ONNX models, export it as one", filepath.Base(others[0])))
	}
	return err
}

// batching takes over what bounds batches, the queue and the time in it.
func (m *model) batching() {
	s, d := &m.service, m.c.GetDynamicBatching()
	if m.c.MaxBatchSize != 0 {
		s.MaxQueryBatch = int(m.c.MaxBatchSize)
	}
	if d == nil {
		return
	}
	s.MaxBatch = max(int(m.c.MaxBatchSize), 1)
	p := d.DefaultQueuePolicy
	if p.GetMaxQueueSize() > 0 {
		s.QueueLimit = int(p.MaxQueueSize)
	}
	if timeout := p.GetDefaultTimeoutMicroseconds(); timeout > 0 {
		const most = uint64(365 * 24 * time.Hour / time.Microsecond) // more than any target may be, and far from overflow
		s.Target, m.hasTarget = time.Duration(min(timeout, most))*time.Microsecond, true
		m.note("the target is default_timeout_microseconds, %v, from the arrival to the answer, where Triton bounds the time in the queue", s.Target)
	}
	if p.GetTimeoutAction() == inference.ModelQueuePolicy_DELAY {
		m.note("timeout_action DELAY has no effect: a query that cannot be in time is refused")
	}
}

// instances looks at where the model is to run, and how often.
func (m *model) instances() {
	groups := m.c.InstanceGroup
	m.cpu = len(groups) > 0
	for _, g := range groups {
		m.cpu = m.cpu && g.Kind == inference.ModelInstanceGroup_KIND_CPU
	}
	if len(groups) > 1 || len(groups) == 1 && groups[0].Count > 1 {
		m.note("instance_group: one worker serves the model, which takes several queries as a batch")
	}
}

// parameters takes over those of the backend that there are here, too.
func (m *model) parameters() {
	for _, key := range slices.Sorted(maps.Keys(m.c.Parameters)) {
		value := m.c.Parameters[key].GetStringValue()
		threads, err := strconv.Atoi(value)
		if key == "intra_op_thread_count" && err == nil && threads >= 0 {
			m.service.Threads = threads
			continue
		}
		m.note("parameters: %q = %q has no effect", key, value)
	}
}

// compare holds the configuration to the file of the model.
func (m *model) compare(path string) error {
	f, err := models.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	var inputs, outputs []models.TensorSpec
	for _, v := range f.Graph.FeedInputs() {
		inputs = append(inputs, models.TensorSpec{Name: v.Name, Type: v.Type})
	}
	for _, v := range f.Graph.Outputs {
		outputs = append(outputs, models.TensorSpec{Name: v.Name, Type: v.Type})
	}
	return errors.Join(comparePorts(m, "input", m.c.Input, inputs), comparePorts(m, "output", m.c.Output, outputs))
}

// port is an input or an output in a configuration.
type port interface {
	GetName() string
	GetDataType() inference.DataType
	GetDims() []int64
}

// comparePorts compares all inputs or all outputs. None in the configuration are those
// of the file; else all inputs must be there, and outputs may be left out.
func comparePorts[P port](m *model, kind string, configured []P, ports []models.TensorSpec) error {
	var faults []error
	var names []string
	for _, p := range ports {
		names = append(names, strconv.Quote(p.Name))
	}
	for _, t := range configured {
		i := slices.IndexFunc(ports, func(p models.TensorSpec) bool { return p.Name == t.GetName() })
		if i < 0 {
			faults = append(faults, fmt.Errorf("%s has the %s %q, which is not in %s: it has %s", configFile, kind, t.GetName(), m.file(), strings.Join(names, ", ")))
		} else if says, same := m.compareType(t, ports[i].Type); !same {
			faults = append(faults, fmt.Errorf("%s %q is %s by %s and %s in %s: make them alike, or leave out all inputs and outputs",
				kind, t.GetName(), says, configFile, ports[i].Type, m.file()))
		}
	}
	if n := len(configured); kind == "input" && n > 0 && n < len(ports) {
		faults = append(faults, fmt.Errorf("%s has %d of the %d inputs in %s (%s): add the others, or leave out all of them", configFile, n, len(ports), m.file(), strings.Join(names, ", ")))
	}
	return errors.Join(faults...)
}

// compareType returns what is configured of an input or output and whether the model is
// of that type. The worker will say what there is to say of values that are no tensors.
func (m *model) compareType(t port, is models.Type) (says string, same bool) {
	dims := t.GetDims()
	if m.c.MaxBatchSize > 0 {
		dims = slices.Concat([]int64{-1}, dims)
	}
	elem := strings.Replace(strings.TrimPrefix(t.GetDataType().String(), "TYPE_"), "STRING", "BYTES", 1)
	says = elem + strings.ReplaceAll(fmt.Sprint(dims), " ", ",")
	if is.Kind != models.KindTensor {
		return says, true
	}
	same = t.GetDataType() == inference.DataType_TYPE_INVALID || elem == is.Elem.Protocol()
	if is.HasShape && len(t.GetDims()) > 0 {
		same = same && slices.EqualFunc(dims, is.Shape, func(want int64, d models.Dim) bool { return !d.Fixed() || want == d.Value })
	}
	return says, same
}

func (m *model) file() string { return filepath.Base(m.service.Model) }
