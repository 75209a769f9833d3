package training

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/overlapd/overlapd/textfile"
)

// maxFiles is how many files of a folder are read at most.
const maxFiles = 4096

// ReadPath reads a CSV file, or all files of a folder that end in .csv, in
// the order of their names, and merges them.
func ReadPath(path string) (*Dataset, error) {
	files, err := csvFiles(path)
	if err != nil {
		return nil, err
	}
	datasets := make([]*Dataset, len(files))
	for i, file := range files {
		if datasets[i], err = readFile(file); err != nil {
			return nil, err
		}
	}
	d, err := Merge(datasets...)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return d, nil
}

// csvFiles returns path itself, or the files of the folder that it is.
func csvFiles(path string) ([]string, error) {
	if info, err := os.Stat(path); err != nil || !info.IsDir() {
		return []string{path}, nil // opening it fails with the reason
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, err
	}
	var files []string
	for _, e := range entries {
		if !e.IsDir() && strings.EqualFold(filepath.Ext(e.Name()), ".csv") {
			files = append(files, filepath.Join(path, e.Name()))
		}
	}
	switch {
	case len(files) == 0:
		return nil, fmt.Errorf("%s: %w: the folder has no file that ends in .csv; name one that has", path, ErrFormat)
	case len(files) > maxFiles:
		return nil, fmt.Errorf("%s: %w: %d files, the limit is %d; split the folder", path, ErrLimit, len(files), maxFiles)
	}
	return files, nil
}

func readFile(path string) (*Dataset, error) {
	file, err := textfile.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return ReadCSV(file, path)
}

// maxSoloBytes limits a file of solo times.
const maxSoloBytes = 1 << 20

// SoloTime is what a whole model takes alone, in microseconds, for a batch size and a
// sequence length.
type SoloTime struct {
	Model  string
	Size   int
	SeqLen int
	Micros float64
}

// soloColumns are those of a file of solo times.
var soloColumns = []string{"model", "batch", "seq_len", "min_ms"}

// ReadSoloFile reads a file as ReadSolo does.
func ReadSoloFile(path string) ([]SoloTime, error) {
	file, err := textfile.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return ReadSolo(file, path)
}

// ReadSolo reads what whole models take alone, a CSV file with the columns
// model, batch, seq_len and min_ms, in milliseconds; further ones are passed
// over. The name stands in errors.
func ReadSolo(r io.Reader, name string) ([]SoloTime, error) {
	s := soloReader{name: name, table: textfile.NewTable(r, maxSoloBytes), seen: map[SoloTime]bool{}}
	if err := s.readHeader(); err != nil {
		return nil, err
	}
	for {
		fields, err := s.table.Read()
		switch {
		case errors.Is(err, io.EOF) && len(s.list) == 0:
			return nil, inFile(name, 0, fmt.Errorf("%w: there are columns, but no row below them; add the time of a model, or leave the file out", ErrFormat))
		case errors.Is(err, io.EOF):
			return s.list, nil
		case err != nil:
			return nil, tableError(name, s.table, err)
		}
		if err := s.add(fields); err != nil {
			return nil, inFile(name, s.table.Line(), fmt.Errorf("%w: %w", ErrFormat, err))
		}
	}
}

// soloReader reads one file, whose lines have width fields, those of soloColumns at
// these positions. seen holds what was read, with no time.
type soloReader struct {
	name  string
	table *textfile.Table
	width int
	at    [4]int
	list  []SoloTime
	seen  map[SoloTime]bool
}

func (s *soloReader) readHeader() error {
	fields, err := s.table.Read()
	if errors.Is(err, io.EOF) {
		return inFile(s.name, 0, fmt.Errorf("%w: the file is empty; its columns are %s", ErrFormat, strings.Join(soloColumns, ",")))
	}
	if err != nil {
		return tableError(s.name, s.table, err)
	}
	s.width = len(fields)
	for i, c := range soloColumns {
		if s.at[i] = slices.Index(fields, c); s.at[i] < 0 {
			return inFile(s.name, s.table.Line(), fmt.Errorf("%w: column %s is missing; the columns are %s", ErrFormat, c, strings.Join(soloColumns, ",")))
		}
	}
	return nil
}

func (s *soloReader) add(fields []string) error {
	if len(fields) != s.width {
		return fmt.Errorf("%d fields, the first line names %d columns; correct the row or remove it", len(fields), s.width)
	}
	one, err := parseSolo(fields[s.at[0]], fields[s.at[1]], fields[s.at[2]], fields[s.at[3]])
	if err != nil {
		return err
	}
	key := one
	key.Micros = 0
	if s.seen[key] {
		return fmt.Errorf("%s with batch size %d and sequence length %d stands twice; remove one of the rows", one.Model, one.Size, one.SeqLen)
	}
	s.seen[key] = true
	s.list = append(s.list, one)
	return nil
}

func parseSolo(model, size, seqLen, millis string) (SoloTime, error) {
	s := SoloTime{Model: strings.Clone(model)}
	var errs [3]error
	s.Size, errs[0] = strconv.Atoi(size)
	s.SeqLen, errs[1] = strconv.Atoi(seqLen)
	ms, err := strconv.ParseFloat(millis, 64)
	s.Micros, errs[2] = ms*1000, err
	if errors.Join(errs[:]...) != nil || s.Size < 1 || s.Size > MaxSize || s.SeqLen < 0 || s.SeqLen > MaxSeqLen ||
		checkName(model) != nil || checkMicros(s.Micros, false) != nil {
		return s, fmt.Errorf("%s,%s,%s,%s is no model, batch size, sequence length and time in milliseconds; correct the row or remove it",
			clip(model), clip(size), clip(seqLen), clip(millis))
	}
	return s, nil
}
