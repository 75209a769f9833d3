package reproduce

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/training"
)

// Where things lie below the folder with data.
const (
	abacusFolder = "abacus-a100"
	pairsFolder  = "pairs"
	quadFolder   = "quad"
	soloFile     = "solo_ms.csv"
	calmFile     = "results_50qps_pairs.csv"
	fullFile     = "results_100qps_pairs.csv"
	loadsFile    = "maf_loads_per_minute.csv"
)

// deviceName is what the authors measured on.
const deviceName = "NVIDIA A100, as measured by the authors of Abacus"

// data is what the authors measured, and what they published of their runs.
type data struct {
	sha256  string
	pairs   *training.Dataset
	quad    *training.Dataset // nil without
	solo    []training.SoloTime
	authors map[int]authorsResults // by load
	loads   string                 // path of the loads per minute, "" without
}

// readData reads the folder. Only the pairs must be there.
func readData(dir string) (*data, error) {
	base := filepath.Join(dir, abacusFolder)
	if !exists(base) {
		base = dir
	}
	if !exists(filepath.Join(base, pairsFolder)) {
		return nil, fmt.Errorf("%s: %w: there is neither %s nor %s in it; --data names the folder with the measurements of the authors",
			dir, errData, filepath.Join(abacusFolder, pairsFolder), pairsFolder)
	}
	d := &data{authors: map[int]authorsResults{}}
	var err error
	if d.pairs, err = training.ReadPath(filepath.Join(base, pairsFolder)); err != nil {
		return nil, err
	}
	if path := filepath.Join(base, quadFolder); exists(path) {
		if d.quad, err = training.ReadPath(path); err != nil {
			return nil, err
		}
	}
	if d.solo, err = training.ReadSoloFile(filepath.Join(base, soloFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for load, name := range map[int]string{calmLoad: calmFile, fullLoad: fullFile} {
		if d.authors[load], err = readAuthors(filepath.Join(base, name)); err != nil {
			return nil, err
		}
	}
	for _, path := range []string{filepath.Join(dir, loadsFile), filepath.Join(base, "..", loadsFile)} {
		if d.loads == "" && exists(path) {
			d.loads = path
		}
	}
	d.sha256, err = hashOf(base, d.loads)
	return d, err
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// hashOf names what was read, by content.
func hashOf(base, loads string) (string, error) {
	h := sha256.New()
	var paths []string
	for _, pattern := range []string{"*.csv", filepath.Join(pairsFolder, "*"), filepath.Join(quadFolder, "*")} {
		found, err := filepath.Glob(filepath.Join(base, pattern))
		if err != nil {
			return "", err
		}
		paths = append(paths, found...)
	}
	slices.Sort(paths)
	if loads != "" {
		paths = append(paths, loads)
	}
	for _, path := range paths {
		if err := addFile(h, path); err != nil {
			return "", err
		}
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

func addFile(h hash.Hash, path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil || info.IsDir() {
		return err
	}
	fmt.Fprintf(h, "%s %d\n", filepath.Base(path), info.Size())
	_, err = io.Copy(h, file)
	return err
}

// beyondPairs are the groups of the models of section 7.4, pairs of them among
// them, so that a device knows what each takes alone and in pairs too.
func (d *data) beyondPairs() (*training.Dataset, error) {
	pairs := &training.Dataset{Models: d.pairs.Models}
	for i := range d.pairs.Rows {
		row := &d.pairs.Rows[i]
		if !slices.ContainsFunc(row.Group.Spans, func(s models.Span) bool { return d.quad.Model(d.pairs.Models[s.Service].Name) < 0 }) {
			pairs.Rows = append(pairs.Rows, *row)
		}
	}
	return training.Merge(onlyUsed(pairs), d.quad)
}

// onlyUsed leaves out models of which there is no group.
func onlyUsed(d *training.Dataset) *training.Dataset {
	used := make([]bool, len(d.Models))
	for i := range d.Rows {
		for _, s := range d.Rows[i].Group.Spans {
			used[s.Service] = true
		}
	}
	rest := &training.Dataset{Device: d.Device}
	to := make([]models.ServiceID, len(d.Models))
	for i, m := range d.Models {
		if used[i] {
			to[i] = models.ServiceID(len(rest.Models))
			rest.Models = append(rest.Models, m)
		}
	}
	for _, row := range d.Rows {
		spans := slices.Clone(row.Group.Spans)
		for i := range spans {
			spans[i].Service = to[spans[i].Service]
		}
		row.Group.Spans = spans
		rest.Rows = append(rest.Rows, row)
	}
	return rest
}

// soloOf are the solo times of the models of a dataset.
func (d *data) soloOf(of *training.Dataset) []training.SoloTime {
	return slices.DeleteFunc(slices.Clone(d.solo), func(s training.SoloTime) bool { return of.Model(s.Model) < 0 })
}

// halve divides the rows into those that the device is made of and those that
// predictors are trained on. They have none in common.
func halve(d *training.Dataset, seed uint64) (device, predictor *training.Dataset) {
	order := rand.New(rand.NewPCG(seed, halveStream)).Perm(len(d.Rows))
	part := func(positions []int) *training.Dataset {
		positions = slices.Sorted(slices.Values(positions))
		half := &training.Dataset{Device: deviceName, Models: d.Models, Rows: make([]training.Row, len(positions))}
		for i, p := range positions {
			half.Rows[i] = d.Rows[p]
		}
		return half
	}
	middle := len(order) / 2
	return part(order[:middle]), part(order[middle:])
}

// halveStream keeps this use of a seed apart from others.
const halveStream = 0x5bd1
