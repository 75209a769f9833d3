package wire

import (
	"fmt"
	"strings"

	"github.com/overlapd/overlapd/models"
)

// Info is what a worker learned of its model by loading it.
type Info struct {
	Inputs     []models.TensorSpec `json:"inputs"`
	Outputs    []models.TensorSpec `json:"outputs"`
	Operators  []models.Operator   `json:"operators"`
	Hash       string              `json:"hash"`
	ORTVersion string              `json:"ort_version"`
	Device     string              `json:"device,omitempty"` // the name of the GPU, "" for the CPU
	Memory     *DeviceMemory       `json:"memory,omitempty"` // of the GPU
	Cut        *CutChoice          `json:"cut,omitempty"`    // into how many operators, and why; nil if none was to be chosen
	CacheHit   bool                `json:"cache_hit"`
	LoadNanos  int64               `json:"load_nanos"`
	Solo       []Solo              `json:"solo,omitempty"` // as measured while warming up
}

// Solo is how long each operator takes for a batch that runs alone.
type Solo struct {
	Size   int     `json:"size"`    // of the batch
	SeqLen int     `json:"seq_len"` // 0 if the model has none
	Nanos  []int64 `json:"nanos"`   // by operator, the median of a few runs
}

// Hello is the first message of a worker.
type Hello struct {
	Protocol int `json:"protocol"`
	PID      int `json:"pid"`
}

// Kind returns KindHello.
func (*Hello) Kind() Kind { return KindHello }

// Decode implements Message.
func (m *Hello) Decode(payload []byte) error {
	*m = Hello{}
	return decodeNote(payload, KindHello, m)
}

func (m *Hello) appendPayload(dst []byte) ([]byte, error) { return appendJSON(dst, m) }

// Progress reports how far a worker has come with loading.
type Progress struct {
	Phase string `json:"phase"`
	Done  int64  `json:"done"`
	Total int64  `json:"total"` // 0 if it is not known
}

// Kind returns KindProgress.
func (*Progress) Kind() Kind { return KindProgress }

// Decode implements Message.
func (m *Progress) Decode(payload []byte) error {
	*m = Progress{}
	if err := decodeNote(payload, KindProgress, m); err != nil {
		return err
	}
	return checkProgress(KindProgress, m.Phase, m.Done, m.Total)
}

func (m *Progress) appendPayload(dst []byte) ([]byte, error) { return appendJSON(dst, m) }

// Ready reports that the model is loaded, so that spans can be run.
type Ready struct{ Info Info }

// Kind returns KindReady.
func (*Ready) Kind() Kind { return KindReady }

// Decode implements Message.
func (m *Ready) Decode(payload []byte) error {
	m.Info = Info{}
	if err := checkElements(payload); err != nil {
		return err
	}
	if err := decodeJSON(payload, KindReady, &m.Info); err != nil {
		return err
	}
	return m.Info.check()
}

func (m *Ready) appendPayload(dst []byte) ([]byte, error) { return appendJSON(dst, &m.Info) }

// LoadFailed is the reason why the model cannot be served. The worker then exits.
type LoadFailed struct {
	Code    FailCode `json:"code,omitempty"`
	Message string   `json:"message"`
}

// Kind returns KindLoadFailed.
func (*LoadFailed) Kind() Kind { return KindLoadFailed }

// Decode implements Message.
func (m *LoadFailed) Decode(payload []byte) error {
	*m = LoadFailed{}
	err := decodeNote(payload, KindLoadFailed, m)
	m.Message = clip(m.Message)
	return err
}

func (m *LoadFailed) appendPayload(dst []byte) ([]byte, error) {
	return appendJSON(dst, &LoadFailed{Code: m.Code, Message: clip(m.Message)})
}

// OutputTensor is an output in the output arena, leased to the daemon under a
// slot of the control page.
type OutputTensor struct {
	Tensor
	Slot uint32
}

const outputBytes = tensorBytes + 4

// Done answers a Run.
//
// It has two times of one span. Nanos is the host's, from before the inputs
// are copied until the device has been waited for: the latency of the span as
// predictors see it. DeviceNanos is the device's own, between two marks in its
// queue: from the first operator to the last, or to the last copy of an output
// if the batch is finished. The difference is what launching, copying and
// waking up cost.
type Done struct {
	Round             uint64
	Batch             models.BatchID
	Reached           int              // the operator that would run next
	Nanos             int64            // time in the engine, by the host's clock
	DeviceNanos       int64            // time of the device, by its own clock; 0 on the CPU
	IntermediateBytes int64            // held by the paused batches of this worker
	Finished          bool             // the batch ran to its end; the worker has forgotten it
	Outputs           [][]OutputTensor // of every query, in the order of the Run that started the batch; only if Finished

	tensors []OutputTensor // memory of Outputs, kept between calls of Decode
	dims    []int64
}

// Kind returns KindDone.
func (*Done) Kind() Kind { return KindDone }

func (m *Done) check() error {
	switch {
	case m.Reached < 0 || m.Reached > maxPosition || m.Nanos < 0 || m.DeviceNanos < 0 || m.IntermediateBytes < 0:
		return fmt.Errorf("%w: done at %d in %d ns (device %d ns), %d bytes",
			ErrMessage, m.Reached, m.Nanos, m.DeviceNanos, m.IntermediateBytes)
	case len(m.Outputs) > MaxQueries:
		return fmt.Errorf("%w: done with %d queries", ErrMessage, len(m.Outputs))
	case m.Finished != (len(m.Outputs) > 0):
		return fmt.Errorf("%w: done with %d queries, finished %t", ErrMessage, len(m.Outputs), m.Finished)
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
	dst = le.AppendUint64(dst, uint64(m.IntermediateBytes))
	dst = appendBool(dst, m.Finished)
	dst = le.AppendUint32(dst, uint32(len(m.Outputs)))
	for _, outputs := range m.Outputs {
		var err error
		if dst, err = appendOutputs(dst, outputs); err != nil {
			return nil, err
		}
	}
	return dst, nil
}

func appendBool(dst []byte, v bool) []byte {
	if v {
		return append(dst, 1)
	}
	return append(dst, 0)
}

func appendOutputs(dst []byte, outputs []OutputTensor) ([]byte, error) {
	if len(outputs) > MaxTensors {
		return nil, fmt.Errorf("%w: query of %d outputs", ErrMessage, len(outputs))
	}
	dst = le.AppendUint32(dst, uint32(len(outputs)))
	for i := range outputs {
		var err error
		if dst, err = appendTensor(dst, &outputs[i].Tensor); err != nil {
			return nil, err
		}
		dst = le.AppendUint32(dst, outputs[i].Slot)
	}
	return dst, nil
}

// Decode implements Message.
func (m *Done) Decode(payload []byte) error {
	d := decoder{data: payload}
	m.Round = d.uint64()
	m.Batch = models.BatchID(d.uint64())
	m.Reached = d.position()
	m.Nanos = d.size()
	m.DeviceNanos = d.size()
	m.IntermediateBytes = d.size()
	m.Finished = d.bool()
	m.Outputs = resize(m.Outputs, d.count(MaxQueries, 4))
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

// Failed answers a Run that could not be done. The worker has forgotten the
// batch.
type Failed struct {
	Round   uint64
	Batch   models.BatchID
	Code    FailCode
	Message string
}

// Kind returns KindFailed.
func (*Failed) Kind() Kind { return KindFailed }

func (m *Failed) appendPayload(dst []byte) ([]byte, error) {
	dst = le.AppendUint64(dst, m.Round)
	dst = le.AppendUint64(dst, uint64(m.Batch))
	dst = append(dst, uint8(m.Code))
	text := clip(m.Message)
	dst = le.AppendUint32(dst, uint32(len(text)))
	return append(dst, text...), nil
}

// Decode implements Message.
func (m *Failed) Decode(payload []byte) error {
	d := decoder{data: payload}
	m.Round = d.uint64()
	m.Batch = models.BatchID(d.uint64())
	m.Code = FailCode(d.uint8())
	m.Message = clip(string(d.take(d.count(maxMessageBytes, 1))))
	return d.done(KindFailed)
}

// clip bounds a text that came from anywhere.
func clip(text string) string {
	if len(text) > maxMessageBytes {
		text = text[:maxMessageBytes]
	}
	return strings.ToValidUTF8(text, "?")
}
