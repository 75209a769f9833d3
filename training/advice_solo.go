package training

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
)

const (
	maxSoloBytes = 1 << 20
	soloApart    = 0.1 // relative difference of two solo times that is worth a word
)

// SoloSource says where a solo time comes from.
type SoloSource string

// The sources.
const (
	SoloMeasured SoloSource = "measured" // groups of one span
	SoloGiven    SoloSource = "file"     // a list of solo times
	SoloInferred SoloSource = "inferred" // groups of several spans
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

// ReadSolo reads what whole models take alone, a CSV file with the columns
// model, batch, seq_len and min_ms, in milliseconds; further ones are passed
// over. The name stands in errors.
func ReadSolo(r io.Reader, name string) ([]SoloTime, error) {
	limited := &io.LimitedReader{R: r, N: maxSoloBytes + 1}
	lines, err := csv.NewReader(skipBOM(limited)).ReadAll()
	if limited.N <= 0 {
		return nil, &CSVError{File: name, Err: fmt.Errorf("%w: more than %d bytes", ErrLimit, maxSoloBytes)}
	}
	var fault *csv.ParseError
	if errors.As(err, &fault) {
		return nil, &CSVError{File: name, Line: fault.Line, Err: fmt.Errorf("%w: %w", ErrFormat, fault.Err)}
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	columns := []string{"model", "batch", "seq_len", "min_ms"}
	if len(lines) == 0 {
		return nil, &CSVError{File: name, Err: fmt.Errorf("%w: the file is empty; its columns are %s", ErrFormat, strings.Join(columns, ","))}
	}
	at := make([]int, len(columns))
	for i, c := range columns {
		if at[i] = slices.Index(lines[0], c); at[i] < 0 {
			return nil, &CSVError{File: name, Line: 1, Err: fmt.Errorf("%w: column %s is missing", ErrFormat, c)}
		}
	}
	list := make([]SoloTime, 0, len(lines)-1)
	for i, line := range lines[1:] {
		s, err := parseSolo(line[at[0]], line[at[1]], line[at[2]], line[at[3]])
		if err != nil {
			return nil, &CSVError{File: name, Line: i + 2, Err: err}
		}
		list = append(list, s)
	}
	return list, nil
}

func parseSolo(model, size, seqLen, millis string) (SoloTime, error) {
	s := SoloTime{Model: model, Source: SoloGiven}
	var errs [3]error
	s.Size, errs[0] = strconv.Atoi(size)
	s.SeqLen, errs[1] = strconv.Atoi(seqLen)
	ms, err := strconv.ParseFloat(millis, 64)
	s.Micros, errs[2] = ms*1000, err
	if errors.Join(errs[:]...) != nil || s.Size < 1 || s.SeqLen < 0 || checkName(model) != nil || checkMicros(s.Micros, false) != nil {
		return s, fmt.Errorf("%w: %s,%s,%s,%s is no model, batch size, sequence length and time in milliseconds",
			ErrFormat, clip(model), clip(size), clip(seqLen), clip(millis))
	}
	return s, nil
}

// give sets the time of whole models to what a list says. How it spreads over
// the operators stays as the groups have it.
func (c *cells) give(d *Dataset, list []SoloTime) (fitted map[cellKey]float64) {
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

// soloTimes returns the solo times that gains are made of.
func (c *cells) soloTimes(d *Dataset, fitted map[cellKey]float64) []SoloTime {
	list := make([]SoloTime, 0, len(c.list))
	for _, cell := range c.list {
		list = append(list, SoloTime{
			Model: d.Models[cell.key.model].Name, Size: cell.key.size, SeqLen: cell.key.seqLen,
			Micros: cell.whole(), Source: cell.source, Alone: cell.alone, Groups: cell.groups, Fitted: fitted[cell.key],
		})
	}
	return list
}
