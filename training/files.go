package training

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/overlapd/overlapd/internal/textfile"
)

// ReadPath reads measured groups from CSV files in the form of docs/dataset.md and merges them.
// For a folder it reads all files whose names end in .csv, in the order of their names. The
// number of operators of a model is the largest end of its spans.
func ReadPath(paths ...string) (*Dataset, error) {
	var datasets []*Dataset
	for _, path := range paths {
		files, err := csvFiles(path)
		if err != nil {
			return nil, err
		}
		for _, name := range files {
			c := csvReader{byName: map[string]int{}}
			if err := groupSheet.ReadFile(name, c.readHeader, c.readRow); err != nil {
				return nil, err
			}
			datasets = append(datasets, &c.data)
		}
	}
	d, err := Merge(datasets...)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", strings.Join(paths, ", "), err)
	}
	return d, nil
}

// csvFiles returns path itself, or the CSV files in the folder at path.
func csvFiles(path string) ([]string, error) {
	if info, err := os.Stat(path); err != nil || !info.IsDir() {
		// Opening a path that does not exist gives the error.
		return []string{path}, nil
	}
	files, err := fs.Glob(os.DirFS(path), "*.[cC][sS][vV]")
	for i := range files {
		files[i] = filepath.Join(path, files[i])
	}
	switch {
	case err != nil:
		return nil, err
	case len(files) == 0:
		return nil, fmt.Errorf("%s: %w: the folder has no file that ends in .csv; name one that has", path, ErrFormat)
	}
	return files, nil
}

// SoloTime is the isolated latency of a whole model in microseconds, for one batch size and
// sequence length.
type SoloTime struct {
	Model  string
	Size   int
	SeqLen int
	Micros float64
}

var soloSheet = textfile.Sheet{
	Form:    "the columns model, batch, seq_len and min_ms (milliseconds)",
	MaxRows: maxRows, Unusable: ErrFormat, TooLarge: ErrLimit,
}

// ReadSoloFile reads the isolated latencies of whole models from a CSV file. It has the columns
// model, batch, seq_len and min_ms (in milliseconds); others are ignored. An empty path names none.
func ReadSoloFile(path string) (list []SoloTime, err error) {
	if path == "" {
		return nil, nil
	}
	var model, size, seqLen, millis int
	// The keys of seen have no times.
	seen := map[SoloTime]bool{}
	err = soloSheet.ReadFile(path, func(t *textfile.Table) {
		size, seqLen, millis, model = t.Require("batch"), t.Require("seq_len"), t.Require("min_ms"), t.Require("model")
	}, func(t *textfile.Table) {
		s := SoloTime{Model: strings.Clone(t.Fields[model]), Size: t.Whole(size, 1, maxSize), SeqLen: t.Whole(seqLen, 0, maxSeqLen)}
		if err := checkName(s.Model); err != nil {
			t.Refuse(model, "%w", err)
		}
		if seen[s] {
			t.Fault("%s with batch size %d and sequence length %d stands twice; remove one of the rows", s.Model, s.Size, s.SeqLen)
		}
		seen[s] = true
		if s.Micros = 1000 * t.Number(millis, 0, MaxMicros/1000); s.Micros == 0 {
			t.Refuse(millis, "no model takes so many milliseconds; correct the row or remove it")
		}
		list = append(list, s)
	})
	return list, err
}
