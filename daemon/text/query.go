package text

import (
	"encoding/binary"

	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/models"
)

// The inputs that can be made of text, by the names that exporters give them.
const (
	inputIDs       = "input_ids"
	inputMask      = "attention_mask"
	inputTypes     = "token_type_ids"
	inputPositions = "position_ids"
)

// checkInputs returns an error if a model has inputs that cannot be made of text.
func checkInputs(sig *query.Signature) *query.Error {
	if query.Find(sig.Inputs, []byte(inputIDs)) < 0 {
		return query.Invalid("the model has no input %q: it does not take text", inputIDs)
	}
	for i := range sig.Inputs {
		p := &sig.Inputs[i]
		switch p.Name {
		case inputIDs, inputMask, inputTypes, inputPositions:
		default:
			return query.Invalid("the input %q of the model cannot be made of text: export the model without it", p.Name)
		}
		if p.Type != models.Int64 && p.Type != models.Int32 || p.AnyRank || len(p.Dims) != 2 {
			return query.Invalid("the input %q of the model cannot be made of text: it must be INT64 or INT32 and have the shape [batch, sequence]", p.Name)
		}
	}
	return nil
}

// fixedLength returns the length of all sequences if the model has only one, or 0.
func fixedLength(sig *query.Signature) int {
	if p := &sig.Inputs[query.Find(sig.Inputs, []byte(inputIDs))]; p.Dims[1] > 0 {
		return int(p.Dims[1])
	}
	return 0
}

// one is the query of one text: the codec by which it becomes a call, and the outputs a row.
type one struct {
	*work
	index int
}

// Decode gives the call its inputs.
func (q *one) Decode(c *query.Call) *query.Error {
	s := &q.sequences[q.index]
	// Half of a request must not be answered by another model or with another tokenizer.
	if c.Service.ID != q.Service.ID || c.Service.Text == nil || c.Service.Text.Hash != q.text.Hash {
		return errReplaced
	}
	c.Arrival = q.Arrival
	if err := q.Options.Apply(c); err != nil {
		return err
	}
	// The signature may be that of a model which a restarted worker has loaded since.
	if err := checkInputs(c.Signature); err != nil {
		return err
	}
	length := fixedLength(c.Signature)
	if length == 0 {
		length = q.text.Padded(len(s.ids))
	}
	// It was made for a model that took longer ones.
	if length < len(s.ids) {
		return errReplaced
	}
	for i := range c.Signature.Inputs {
		p := &c.Signature.Inputs[i]
		in := query.Input{Tensor: models.Tensor{Type: p.Type, Data: q.input(p, s, length)}}
		for _, d := range []int64{1, int64(length)} {
			if err := in.AddDimension(d); err != nil {
				return err
			}
		}
		if err := c.Give(i, &in); err != nil {
			return err
		}
	}
	c.AskAll(true)
	if err := c.Check(); err != nil {
		return err
	}
	return c.Admit(func(dst []byte, in *query.Input) (int, *query.Error) { return copy(dst, in.Data), nil })
}

// input returns the elements of an input for a sequence that is padded to a length.
func (q *one) input(p *query.Port, s *sequence, length int) []byte {
	padID, padType := q.text.Tokenizer.Pad()
	size := p.Type.Bytes()
	data := make([]byte, 0, length*size)
	for i := range length {
		var v int64
		switch inside := i < len(s.ids); {
		case p.Name == inputIDs && inside:
			v = s.ids[i]
		case p.Name == inputIDs:
			v = padID
		case p.Name == inputMask && inside:
			v = 1
		case p.Name == inputTypes && inside && i < len(s.types):
			v = s.types[i]
		case p.Name == inputTypes && !inside:
			v = padType
		case p.Name == inputPositions:
			v = int64(i)
		}
		if size == 4 {
			data = binary.LittleEndian.AppendUint32(data, uint32(v))
		} else {
			data = binary.LittleEndian.AppendUint64(data, uint64(v))
		}
	}
	return data
}

// Encode makes the row of the text of the outputs.
func (q *one) Encode(c *query.Call) *query.Error {
	var row []float32
	var err *query.Error
	if q.Raw {
		row, err = scores(c.Reply.Outputs)
	} else {
		row, err = embedding(c, q.text, len(q.sequences[q.index].ids))
	}
	if err != nil {
		return err
	}
	if v := c.Reply.Variant; v != "" {
		q.variants.Store(v, nil)
	}
	q.answer.Rows[q.index] = row
	return q.answer.take(4 * len(row))
}
