package training

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// maxSoloBytes limits a file of solo times.
const maxSoloBytes = 1 << 20

// SoloTime is what a whole model takes alone.
type SoloTime struct {
	Model  string
	Size   int // of the batch
	SeqLen int
	Micros float64
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
	s := SoloTime{Model: model}
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
