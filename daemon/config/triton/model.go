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

// defaultFile is the file name of a version's model unless the configuration names another.
const defaultFile = "model.onnx"

// model is one model of a repository while it is being converted.
type model struct {
	*repository
	name string
	c    *inference.ModelConfig

	// line is the line of a fault in config.pbtxt, 0 if it is not known.
	line  int
	notes []string

	// service is what its versions have in common, services are those that are served.
	service  config.Service
	services []config.Service

	// hasTarget is set if the configuration sets a timeout.
	hasTarget bool

	// cpu is set if all instances are to run on the CPU.
	cpu bool
}

// note records something that the user should know but that is no fault.
func (m *model) note(format string, args ...any) {
	m.notes = append(m.notes, fmt.Sprintf(format, args...))
}

// read converts the model to a service for each version. The target stays unset if the configuration has no
// timeout.
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

// translate converts the parsed configuration. others are the fields that inference.proto
// does not declare.
func (m *model) translate(others []field) error {
	if err := m.checkSupport(others); err != nil {
		return err
	}
	// Triton requires the names to be equal, and clients use the folder's.
	if m.c.Name != "" && m.c.Name != m.name {
		return fmt.Errorf("its configuration has the name %q: give folder and model the same name, or leave the name out", m.c.Name)
	}
	wanted, err := m.wanted()
	if err != nil {
		return err
	}
	m.service.Name = m.name
	m.batching()
	m.instances()
	m.parameters()
	if err := m.operations(); err != nil {
		return err
	}
	for _, version := range wanted {
		folder := strconv.FormatInt(version, 10)
		file, err := m.modelFile(filepath.Join(m.name, folder), cmp.Or(m.c.DefaultModelFilename, defaultFile))
		if err != nil {
			return m.otherFormat(folder, err)
		}
		s := m.service
		s.Version, s.Model = int(version), m.path(file)
		if err := m.compare(s.Model); err != nil {
			return err
		}
		m.services = append(m.services, s)
	}
	return nil
}

// checkSupport returns an unsupported error if overlapd cannot serve the model, and notes
// fields that have no effect.
func (m *model) checkSupport(others []field) error {
	c := m.c
	switch runs := cmp.Or(c.Backend, strings.TrimSuffix(c.Platform, "_onnx")); runs {
	case "", "onnxruntime":
	case "ensemble":
		return unsupported(essential["ensemble_scheduling"])
	default:
		return unsupported(fmt.Sprintf("backend %q is not supported: overlapd runs ONNX models; export the model to ONNX", runs))
	}
	if c.ModelTransactionPolicy.GetDecoupled() {
		return unsupported("model_transaction_policy: decoupled is not supported: every request gets one answer")
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
			return unsupported(fmt.Sprintf("allow_ragged_batch of %q: queries of different shapes are not batched", t.Name))
		}
	}
	return nil
}

// wanted returns the versions that the policy chooses, the highest first.
func (m *model) wanted() ([]int64, error) {
	there, others, err := m.versions(m.name)
	if err != nil {
		return nil, err
	}
	if len(others) > 0 {
		m.note("ignored folders, whose names are not version numbers from 1: %s", strings.Join(others, ", "))
	}
	if len(there) == 0 {
		return nil, fmt.Errorf("it has no version: put its file at %s", m.path(m.name, "1", defaultFile))
	}
	switch p := m.c.VersionPolicy.GetPolicyChoice().(type) {
	case *inference.ModelVersionPolicy_All_:
		return there, nil
	case *inference.ModelVersionPolicy_Specific_:
		wanted := slices.DeleteFunc(slices.Clone(there), func(v int64) bool { return !slices.Contains(p.Specific.Versions, v) })
		if len(wanted) == 0 {
			return nil, fmt.Errorf("version_policy names %v, but the versions are %v", p.Specific.Versions, there)
		}
		missing := slices.DeleteFunc(slices.Clone(p.Specific.Versions), func(v int64) bool { return slices.Contains(there, v) })
		if len(missing) > 0 {
			m.note("version_policy also names %v, but the versions are %v", missing, there)
		}
		return wanted, nil
	case *inference.ModelVersionPolicy_Latest_:
		return there[:min(int64(len(there)), max(int64(p.Latest.NumVersions), 1))], nil
	}
	return there[:1], nil
}

// otherFormat explains a missing ONNX file: a model that does not name its backend may have
// a file in another format.
func (m *model) otherFormat(version string, err error) error {
	if !errors.Is(err, fs.ErrNotExist) || m.c.Backend != "" || m.c.Platform != "" || m.c.DefaultModelFilename != "" {
		return err
	}
	if others, _ := fs.Glob(m.root.FS(), filepath.Join(m.name, version, "model.*")); len(others) > 0 {
		return unsupported(fmt.Sprintf("it is a %s: overlapd runs ONNX models; export it to ONNX", filepath.Base(others[0])))
	}
	return err
}

// batching converts the limits of batches and of the queue.
func (m *model) batching() {
	s, d := &m.service, m.c.GetDynamicBatching()
	// Otherwise the default of overlapd applies.
	if m.c.MaxBatchSize != 0 {
		s.MaxQueryBatch = int(m.c.MaxBatchSize)
	}
	if d == nil {
		return
	}
	// Triton batches up to max_batch_size, which is 0 for a model without a batch
	// dimension.
	s.MaxBatch = max(int(m.c.MaxBatchSize), 1)
	p := d.DefaultQueuePolicy
	if p.GetMaxQueueSize() > 0 {
		s.QueueLimit = int(p.MaxQueueSize)
	}
	// A timeout beyond the limit of targets is reported by the validation; it must not
	// overflow before.
	if timeout := p.GetDefaultTimeoutMicroseconds(); timeout > 0 {
		const most = uint64(365 * 24 * time.Hour / time.Microsecond) // more than any target may be, and far from overflow
		s.Target, m.hasTarget = time.Duration(min(timeout, most))*time.Microsecond, true
		m.note("the target is default_timeout_microseconds, %v, from the arrival to the answer; Triton limits only the time in the queue", s.Target)
	}
	// DELAY would keep a late query in the queue; overlapd drops it.
	if p.GetTimeoutAction() == inference.ModelQueuePolicy_DELAY {
		m.note("timeout_action DELAY has no effect: a query that cannot be answered in time is rejected")
	}
}

// instances converts where the model runs. overlapd has one worker for each device, so the
// number of instances has no effect.
func (m *model) instances() {
	groups := m.c.InstanceGroup
	// Without groups Triton chooses, so nothing says CPU.
	m.cpu = len(groups) > 0
	for _, g := range groups {
		m.cpu = m.cpu && g.Kind == inference.ModelInstanceGroup_KIND_CPU
	}
	if len(groups) > 1 || len(groups) == 1 && groups[0].Count > 1 {
		m.note("instance_group: one worker serves the model, and batches queries")
	}
}

// parameters converts those parameters of Triton's ONNX Runtime backend that overlapd has
// too.
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

// operations converts the libraries of custom operators. A relative path is below the folder
// of the model, and an absolute one names a library that is installed on this host.
func (m *model) operations() error {
	for _, file := range m.c.ModelOperations.GetOpLibraryFilename() {
		if !filepath.IsAbs(file) {
			if !filepath.IsLocal(file) {
				return fmt.Errorf("op_library_filename %q is outside the folder of the model: put the library there, or give its absolute path", file)
			}
			below := filepath.Join(m.name, file)
			if _, err := m.regular(below, false); err != nil {
				return fmt.Errorf("op_library_filename: %w", err)
			}
			file = m.path(below)
		}
		m.service.OpLibraries = append(m.service.OpLibraries, file)
	}
	if n := len(m.service.OpLibraries); n > 0 {
		m.note("op_library_filename: its worker runs the code of %s", strings.Join(m.service.OpLibraries, ", "))
	}
	return nil
}

// compare checks the inputs and outputs of the configuration against the model file. Only
// the head of the file is read.
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
	name, err := filepath.Rel(m.path(m.name), path)
	if err != nil {
		return err
	}
	return errors.Join(comparePorts(m, name, "input", m.c.Input, inputs), comparePorts(m, name, "output", m.c.Output, outputs))
}

// port is an input or output in a configuration.
type port interface {
	GetName() string
	GetDataType() inference.DataType
	GetDims() []int64
}

// comparePorts compares all inputs or all outputs. If the configuration has none, those of
// the file apply. Otherwise all inputs must be present, and outputs may be left out.
func comparePorts[P port](m *model, file, kind string, configured []P, ports []models.TensorSpec) error {
	var faults []error
	var names []string
	for _, p := range ports {
		names = append(names, strconv.Quote(p.Name))
	}
	for _, t := range configured {
		i := slices.IndexFunc(ports, func(p models.TensorSpec) bool { return p.Name == t.GetName() })
		if i < 0 {
			faults = append(faults, fmt.Errorf("%s has the %s %q, which is not in %s: it has %s", configFile, kind, t.GetName(), file, strings.Join(names, ", ")))
		} else if says, same := m.compareType(t, ports[i].Type); !same {
			faults = append(faults, fmt.Errorf("%s %q is %s in %s, but %s in %s: make them equal, or leave out all inputs and outputs",
				kind, t.GetName(), says, configFile, ports[i].Type, file))
		}
	}
	if n := len(configured); kind == "input" && n > 0 && n < len(ports) {
		faults = append(faults, fmt.Errorf("%s has %d of the %d inputs in %s (%s): add the others, or leave out all of them", configFile, n, len(ports), file, strings.Join(names, ", ")))
	}
	return errors.Join(faults...)
}

// compareType returns the configured type of an input or output, and whether it matches
// that of the model. Values that are not tensors are reported by the worker.
func (m *model) compareType(t port, is models.Type) (says string, same bool) {
	dims := t.GetDims()
	// Triton's dims omit the batch dimension if max_batch_size is set.
	if m.c.MaxBatchSize > 0 {
		dims = slices.Concat([]int64{-1}, dims)
	}
	// Triton's configuration calls BYTES a string.
	elem := strings.Replace(strings.TrimPrefix(t.GetDataType().String(), "TYPE_"), "STRING", "BYTES", 1)
	says = elem + strings.ReplaceAll(fmt.Sprint(dims), " ", ",")
	if is.Kind != models.KindTensor {
		return says, true
	}
	// TYPE_INVALID means that the configuration does not set a type.
	same = t.GetDataType() == inference.DataType_TYPE_INVALID || elem == is.Elem.Protocol()
	if is.HasShape && len(t.GetDims()) > 0 {
		same = same && slices.EqualFunc(dims, is.Shape, func(want int64, d models.Dim) bool { return !d.Fixed() || want == d.Value })
	}
	return says, same
}
