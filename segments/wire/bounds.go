package wire

import (
	"bytes"
	"fmt"

	"github.com/overlapd/overlapd/models"
)

// What a worker says while it loads is JSON, and goes into the daemon's log,
// its state and its keys. It may come from a process that a foreign model has
// taken over, so each part of it has a limit.
const (
	maxNoteBytes    = 8 * maxMessageBytes // of JSON: a text of the largest size with every character escaped
	maxPhaseBytes   = 256
	maxLabelBytes   = 256     // a hash, a version, the name of a device
	maxInfoElements = 1 << 20 // of all lists and objects of an Info together, which bounds the memory that decoding takes
)

// decodeNote is decodeJSON for what is short.
func decodeNote(payload []byte, k Kind, v any) error {
	if len(payload) > maxNoteBytes {
		return fmt.Errorf("%w: %s of %d bytes, the limit is %d", ErrMessage, k, len(payload), maxNoteBytes)
	}
	return decodeJSON(payload, k, v)
}

// checkProgress bounds what is said of how far loading has come.
func checkProgress(k Kind, phase string, done, total int64) error {
	if len(phase) > maxPhaseBytes || done < 0 || total < 0 {
		return fmt.Errorf("%w: %s: %d of %d in a phase of %d letters", ErrMessage, k, done, total, len(phase))
	}
	return nil
}

// checkElements refuses an Info that is small as text and large once decoded.
func checkElements(payload []byte) error {
	if n := bytes.Count(payload, []byte{','}); n > maxInfoElements {
		return fmt.Errorf("%w: %s of %d elements, the limit is %d", ErrMessage, KindReady, n, maxInfoElements)
	}
	return nil
}

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
	for _, label := range labels {
		if len(label) > maxLabelBytes {
			return fmt.Errorf("%w: %s with a hash, version or device of %d letters", ErrMessage, KindReady, len(label))
		}
	}
	for _, list := range [2][]models.TensorSpec{i.Inputs, i.Outputs} {
		for _, t := range list {
			if len(t.Type.Shape) > MaxRank {
				return fmt.Errorf("%w: %s with a tensor of rank %d", ErrMessage, KindReady, len(t.Type.Shape))
			}
		}
	}
	for _, t := range i.Solo {
		if len(t.Nanos) != len(i.Operators) {
			return fmt.Errorf("%w: %s with times of %d operators, the model has %d", ErrMessage, KindReady, len(t.Nanos), len(i.Operators))
		}
	}
	return nil
}
