package training

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/overlapd/overlapd/intake"
)

// maxFiles is how many files of a folder are read at most.
const maxFiles = 4096

// ReadPath reads a CSV file, or all files of a folder that end in .csv, in
// the order of their names, and merges them. The known models are as for
// ReadCSV.
func ReadPath(path string, known ...Model) (*Dataset, error) {
	files, err := csvFiles(path)
	if err != nil {
		return nil, err
	}
	datasets := make([]*Dataset, len(files))
	for i, file := range files {
		if datasets[i], err = readFile(file, known); err != nil {
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
		return []string{path}, nil // opening it tells what is wrong
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

func readFile(path string, known []Model) (*Dataset, error) {
	file, err := intake.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return ReadCSV(file, path, known...)
}
