package wire

import (
	"fmt"
	"slices"
	"strings"

	"github.com/overlapd/overlapd/models"
)

const (
	// maxMessageBytes is the length to which the text of a failure is cut.
	maxMessageBytes = 16 << 10

	// maxNoteBytes limits the JSON of such a message. JSON may need several bytes
	// to escape one byte of text.
	maxNoteBytes  = 8 * maxMessageBytes
	maxPhaseBytes = 256
	maxLabelBytes = 256

	// maxElements limits all lists and objects of a message together, and thus the
	// memory that decoding it takes.
	maxElements = 1 << 20
)

// Hello is the first message of a worker. It proves that both ends have the same
// version, and that the expected process is at the other end.
type Hello struct {
	Protocol int `json:"protocol"`
	PID      int `json:"pid"`
}

// Progress reports how far loading has progressed. Total is 0 if it is not known.
type Progress struct {
	Phase string `json:"phase"`
	Done  int64  `json:"done"`
	Total int64  `json:"total"`
}

func (m *Progress) check() error {
	if len(m.Phase) > maxPhaseBytes || m.Done < 0 || m.Total < 0 {
		return fmt.Errorf("%w: progress %d of %d in a phase of %d letters", ErrMessage, m.Done, m.Total, len(m.Phase))
	}
	return nil
}

// Info reports that a model is loaded, and what the worker learned about it.
type Info struct {
	Inputs     []models.TensorSpec `json:"inputs"`
	Outputs    []models.TensorSpec `json:"outputs"`
	Operators  []models.Operator   `json:"operators"`
	Hash       string              `json:"hash"`
	ORTVersion string              `json:"ort_version"`

	// Device is the name of the GPU, empty on the CPU.
	Device string `json:"device,omitempty"`

	// Cut is nil if the worker did not have to choose the cut points.
	Cut       *CutChoice `json:"cut,omitempty"`
	CacheHit  bool       `json:"cache_hit"`
	LoadNanos int64      `json:"load_nanos"`
	Solo      []Solo     `json:"solo,omitempty"`

	// WarmFault is why no warm-up run succeeded. It is empty if one did, or none was
	// tried.
	WarmFault string `json:"warm_fault,omitempty"`

	// Convolutions is set if the model has convolutions. A GPU's libraries prepare
	// those for one batch size at a time.
	Convolutions bool `json:"convolutions,omitempty"`
}

// Solo is the isolated latency of each operator for one kind of batch: the median of
// a few runs during warm-up. SeqLen is 0 for a model without a sequence length. Share is
// on how many units of the device the batch ran, 0 for all of them.
type Solo struct {
	Size   int     `json:"size"`
	SeqLen int     `json:"seq_len"`
	Share  int     `json:"share,omitempty"`
	Nanos  []int64 `json:"nanos"`
}

// check rejects an Info that exceeds a limit, and truncates its texts.
func (i *Info) check() error {
	if len(i.Inputs) > MaxTensors || len(i.Outputs) > MaxTensors || len(i.Operators) == 0 || i.LoadNanos < 0 {
		return fmt.Errorf("%w: %s with %d inputs, %d outputs, %d operators, loaded in %d ns",
			ErrMessage, KindReady, len(i.Inputs), len(i.Outputs), len(i.Operators), i.LoadNanos)
	}
	labels := []string{i.Hash, i.ORTVersion, i.Device}
	if i.Cut != nil {
		labels = append(labels, i.Cut.Hash, i.Cut.ORTVersion)
		i.Cut.Reason = clip(i.Cut.Reason)
	}
	i.WarmFault = clip(i.WarmFault)
	for _, label := range labels {
		if len(label) > maxLabelBytes {
			return fmt.Errorf("%w: %s with a hash, version or device of %d letters", ErrMessage, KindReady, len(label))
		}
	}
	for _, t := range slices.Concat(i.Inputs, i.Outputs) {
		if len(t.Type.Shape) > MaxRank {
			return fmt.Errorf("%w: %s with a tensor of rank %d", ErrMessage, KindReady, len(t.Type.Shape))
		}
	}
	for _, t := range i.Solo {
		if len(t.Nanos) != len(i.Operators) {
			return fmt.Errorf("%w: %s with times of %d operators, the model has %d", ErrMessage, KindReady, len(t.Nanos), len(i.Operators))
		}
	}
	return nil
}

// OutputTensor is an output in the output arena. A slot of the control page leases it
// to the daemon.
type OutputTensor struct {
	models.Tensor
	Slot uint32
}

const outputBytes = tensorBytes + 4

// Done answers a Run. Reached is the operator that would run next. If the batch is
// finished, the worker forgets it, and Outputs has the outputs of each query in the
// order of the Run that started the batch.
//
// Done has two times for one span. Nanos is by the host's clock, from before the
// inputs are copied until the device has completed. That is the latency of the span,
// on which predictors are trained. DeviceNanos is by the device's clock, 0 on the
// CPU. It is the time between two events in the device's queue: from the first
// operator to the last, or to the last copy of an output if the batch is finished.
// The difference is the cost of launching, copying and waking up.
//
// decode reuses the memory of Outputs.
type Done struct {
	Round       uint64
	Batch       models.BatchID
	Reached     int
	Nanos       int64
	DeviceNanos int64
	Outputs     [][]OutputTensor

	tensors []OutputTensor
	dims    []int64
}

// Finished reports whether the batch ran to its end.
func (m *Done) Finished() bool { return len(m.Outputs) > 0 }

func (m *Done) check() error {
	if m.Reached < 0 || m.Reached > maxPosition || m.Nanos < 0 || m.DeviceNanos < 0 {
		return fmt.Errorf("%w: done at %d in %d ns (device %d ns)", ErrMessage, m.Reached, m.Nanos, m.DeviceNanos)
	}
	return nil
}

func (m *Done) appendPayload(dst []byte) ([]byte, error) {
	if err := m.check(); err != nil {
		return nil, err
	}
	dst = le.AppendUint64(dst, m.Round)
	dst = le.AppendUint64(dst, uint64(m.Batch))
	dst = le.AppendUint32(dst, uint32(m.Reached))
	dst = le.AppendUint64(dst, uint64(m.Nanos))
	dst = le.AppendUint64(dst, uint64(m.DeviceNanos))
	return appendList(dst, m.Outputs, MaxQueries, appendOutputs)
}

func appendOutputs(dst []byte, outputs *[]OutputTensor) ([]byte, error) {
	return appendList(dst, *outputs, MaxTensors, appendOutput)
}

func appendOutput(dst []byte, t *OutputTensor) ([]byte, error) {
	dst, err := appendTensor(dst, &t.Tensor)
	return le.AppendUint32(dst, t.Slot), err
}

func (m *Done) decode(payload []byte) error {
	d := decoder{data: payload}
	m.Round = d.uint64()
	m.Batch = models.BatchID(d.uint64())
	m.Reached = int(d.uint32())
	m.Nanos = d.size()
	m.DeviceNanos = d.size()
	n := d.count(MaxQueries, 4)
	m.Outputs = slices.Grow(m.Outputs[:0], n)[:n]
	m.tensors, m.dims = m.tensors[:0], m.dims[:0]
	for i := range m.Outputs {
		m.Outputs[i] = m.decodeOutputs(&d)
	}
	if err := d.done(KindDone); err != nil {
		return err
	}
	return m.check()
}

func (m *Done) decodeOutputs(d *decoder) []OutputTensor {
	n := d.count(MaxTensors, outputBytes)
	start := len(m.tensors)
	for range n {
		var t OutputTensor
		m.dims = d.tensor(&t.Tensor, m.dims)
		t.Slot = d.uint32()
		m.tensors = append(m.tensors, t)
	}
	return m.tensors[start:len(m.tensors):len(m.tensors)]
}

// Failed answers a Run or a Move that failed, whose batch the worker has forgotten. It
// also answers a LoadSpec that could not be loaded; the worker then exits.
type Failed struct {
	Round uint64         `json:"round,omitempty"`
	Batch models.BatchID `json:"batch,omitempty"`

	// Code identifies the sentinel error of Message; see codeOf.
	Code    uint8  `json:"code"`
	Message string `json:"message"`
}

// Fail returns the message for an engine's error.
func Fail(round uint64, batch models.BatchID, err error) *Failed {
	return &Failed{Round: round, Batch: batch, Code: codeOf(err), Message: clip(err.Error())}
}

// Err returns the failure as an error that wraps the sentinel of its code.
func (m *Failed) Err() error {
	sentinel := ErrEngine
	if int(m.Code) < len(failures) {
		sentinel = failures[m.Code]
	}
	return fmt.Errorf("%w: %s", sentinel, strings.ReplaceAll(clip(m.Message), sentinel.Error()+": ", ""))
}

// clip truncates an untrusted text and makes it valid UTF-8.
func clip(text string) string {
	if len(text) > maxMessageBytes {
		text = text[:maxMessageBytes]
	}
	return strings.ToValidUTF8(text, "?")
}
