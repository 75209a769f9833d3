package advice

import (
	"math"

	"github.com/overlapd/overlapd/training"
)

// soloApart is the relative difference of two solo times that is worth a word.
const soloApart = 0.1

// SoloSource says where a solo time comes from.
type SoloSource string

// The sources.
const (
	SoloMeasured SoloSource = "measured"  // groups of one span
	SoloGiven    SoloSource = "file"      // a list of solo times
	SoloProfiled SoloSource = "operators" // the times of its operators
	SoloInferred SoloSource = "inferred"  // groups of several spans
)

// SoloTime is what a whole model takes alone.
type SoloTime struct {
	Model  string     `json:"model"`
	Size   int        `json:"size"`
	SeqLen int        `json:"seq_len"`
	Micros float64    `json:"micros"`
	Source SoloSource `json:"source"`
	Alone  int        `json:"alone"`            // groups that held only spans of it
	Groups int        `json:"groups"`           // groups that held it with others
	Fitted float64    `json:"fitted,omitempty"` // microseconds that the groups say, where a file says otherwise
}

// Apart tells whether a file and the groups disagree.
func (s SoloTime) Apart() bool {
	return s.Source == SoloGiven && s.Alone+s.Groups > 0 && math.Abs(s.Fitted-s.Micros) > soloApart*s.Micros
}

// give sets the time of whole models to what a list says. How it spreads over
// the operators stays as it was.
func (c *cells) give(d *training.Dataset, list []training.SoloTime) (fitted map[cellKey]float64) {
	fitted = map[cellKey]float64{}
	for _, s := range list {
		m := d.Model(s.Model)
		if cell := c.byKey[cellKey{m, s.Size, s.SeqLen}]; m >= 0 && cell != nil {
			fitted[cell.key] = cell.whole()
			cell.scale(s.Micros)
			cell.source = SoloGiven
		}
	}
	return fitted
}

// profile spreads the time of whole models over their operators as these were
// measured one by one. Where too few spans ran alone to tell the whole, it is
// their sum.
func (c *cells) profile(d *training.Dataset, operators map[string][]training.OperatorTimes) {
	for i, m := range d.Models {
		for _, o := range operators[m.Name] {
			if cell := c.byKey[cellKey{i, o.Size, o.SeqLen}]; cell != nil && len(o.Micros) == cell.operators {
				cell.takes(o.Micros)
			}
		}
	}
}

// takes sets the time of each operator, in microseconds.
func (c *soloCell) takes(micros []float64) {
	measured := c.whole()
	sum := 0.0
	for _, m := range micros {
		sum += m
	}
	if sum < minMicros {
		return // they tell nothing
	}
	for o, m := range micros {
		c.prefix[o+1] = c.prefix[o] + m
	}
	c.profiled = true
	if c.source == SoloMeasured {
		c.scale(measured)
		return
	}
	c.source = SoloProfiled
}

// soloTimes returns the solo times that gains are made of.
func (c *cells) soloTimes(d *training.Dataset, fitted map[cellKey]float64) []SoloTime {
	list := make([]SoloTime, 0, len(c.list))
	for _, cell := range c.list {
		list = append(list, SoloTime{
			Model: d.Models[cell.key.model].Name, Size: cell.key.size, SeqLen: cell.key.seqLen,
			Micros: cell.whole(), Source: cell.source, Alone: cell.alone, Groups: cell.groups, Fitted: fitted[cell.key],
		})
	}
	return list
}
