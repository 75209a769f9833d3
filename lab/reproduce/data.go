package reproduce

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"

	"github.com/overlapd/overlapd/lab/sim"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/training"
	"github.com/overlapd/overlapd/training/fit"
)

// The names of folders and files below the folder with data.
const (
	abacusFolder = "abacus-a100"
	pairsFolder  = "pairs"
	quadFolder   = "quad"
	soloFile     = "solo_ms.csv"
	calmFile     = "results_50qps_pairs.csv"
	fullFile     = "results_100qps_pairs.csv"
	loadsFile    = "maf_loads_per_minute.csv"
)

// deviceName is the device that the authors measured.
const deviceName = "NVIDIA A100, as measured by the authors of Abacus"

// data holds the authors' measurements and their published results.
type data struct {
	// sha256 identifies the files that were read.
	sha256 string

	// pairs holds groups of one and of two models.
	pairs *training.Dataset

	// quad holds groups of up to four models, or is nil.
	quad *training.Dataset

	// solo holds isolated latencies from the serving logs, or is nil.
	solo []training.SoloTime

	// authors holds the results by load.
	authors map[float64]authorsResults

	// minutes holds the loads of the trace, or is nil.
	minutes []float64

	// groups are the inputs for devices and predictors, by clock. The first are those of all
	// figures. A second one is for figures that show both clocks.
	groups []groups
}

// groups are measured groups at one clock, by kind of stock.
type groups struct {
	// clock is servingClock or profilingClock.
	clock string

	// kinds maps kinds of stock to their groups.
	kinds map[string]*training.Dataset
}

// The kinds of stock. quadStock has the models of section 7.4 with all their groups, including
// pairs, so that a device knows isolated latencies and pairs too.
const (
	pairsStock = "pairs"
	quadStock  = "quadruplets"
)

// The authors measured at two clocks. In their groups, each of which ran a hundred times in a row,
// large batches took up to twice as long as alone on their server. The data do not show which of
// the two a server under full load has.
const (
	// servingClock has groups calibrated to the serving logs, see [fit.Calibrate].
	servingClock = "serving clock"

	// profilingClock has the groups as measured.
	profilingClock = "profiling clock"
)

// atClocks sets the groups. The serving clock requires isolated latencies.
func (d *data) atClocks(ctx context.Context) (err error) {
	measured := groups{profilingClock, map[string]*training.Dataset{pairsStock: d.pairs}}
	if d.quad != nil {
		if measured.kinds[quadStock], err = d.beyondPairs(); err != nil {
			return err
		}
	}
	d.groups = []groups{measured}
	if len(d.solo) == 0 {
		return nil
	}
	// The serving clock comes first, because figures use it unless they state otherwise.
	serving := groups{servingClock, map[string]*training.Dataset{}}
	for kind, of := range measured.kinds {
		if serving.kinds[kind], _, err = fit.Calibrate(ctx, of, d.soloOf(of)); err != nil {
			return err
		}
	}
	d.groups = []groups{serving, measured}
	return nil
}

// readData reads the folder with data. Only the pairs are required.
func readData(dir string) (*data, error) {
	// The folder may contain the authors' data among that of other papers, or be that folder
	// itself.
	base := filepath.Join(dir, abacusFolder)
	if !exists(base) {
		base = dir
	}
	if !exists(filepath.Join(base, pairsFolder)) {
		return nil, fmt.Errorf("%s: %w: it has neither %s nor %s; give --data the folder with the authors' measurements",
			dir, errData, filepath.Join(abacusFolder, pairsFolder), pairsFolder)
	}
	d := &data{authors: map[float64]authorsResults{}}
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
	for load, name := range map[float64]string{calmLoad: calmFile, fullLoad: fullFile} {
		if d.authors[load], err = readAuthors(filepath.Join(base, name)); err != nil {
			return nil, err
		}
	}
	// The trace is next to the authors' folder.
	loads := filepath.Join(dir, loadsFile)
	if !exists(loads) {
		loads = filepath.Join(base, "..", loadsFile)
	}
	if exists(loads) {
		if d.minutes, err = sim.ReadLoads(loads); err != nil {
			return nil, err
		}
	}
	d.sha256, err = hashOf(base, loads)
	return d, err
}

// exists reports whether a file or folder exists.
func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// hashOf returns a hash of the names and the contents of all files that were read.
func hashOf(base string, more ...string) (string, error) {
	var paths []string
	for _, pattern := range []string{"*.csv", filepath.Join(pairsFolder, "*"), filepath.Join(quadFolder, "*")} {
		found, err := filepath.Glob(filepath.Join(base, pattern))
		if err != nil {
			return "", err
		}
		paths = append(paths, found...)
	}
	slices.Sort(paths)
	h := sha256.New()
	for _, path := range append(paths, more...) {
		info, err := os.Stat(path)
		if err != nil || info.IsDir() {
			continue
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return "", err
		}
		// The name and the length separate the files.
		fmt.Fprintf(h, "%s %d\n", filepath.Base(path), len(content))
		h.Write(content)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// beyondPairs returns all groups of the models of section 7.4, including pairs.
func (d *data) beyondPairs() (*training.Dataset, error) {
	pairs := &training.Dataset{}
	// The models of the quadruplets get new numbers. A pair with any other model is left out.
	to := make([]models.ServiceID, len(d.pairs.Models))
	for i, m := range d.pairs.Models {
		to[i] = -1
		if d.quad.Model(m.Name) >= 0 {
			to[i] = models.ServiceID(len(pairs.Models))
			pairs.Models = append(pairs.Models, m)
		}
	}
	for _, row := range d.pairs.Rows {
		row.Group.Spans = slices.Clone(row.Group.Spans)
		for i := range row.Group.Spans {
			s := &row.Group.Spans[i]
			s.Service = to[s.Service]
		}
		if !slices.ContainsFunc(row.Group.Spans, func(s models.Span) bool { return s.Service < 0 }) {
			pairs.Rows = append(pairs.Rows, row)
		}
	}
	return training.Merge(pairs, d.quad)
}

// soloOf returns the isolated latencies of the models of a dataset.
func (d *data) soloOf(of *training.Dataset) []training.SoloTime {
	return slices.DeleteFunc(slices.Clone(d.solo), func(s training.SoloTime) bool { return of.Model(s.Model) < 0 })
}

// halve divides the rows at random into two disjoint halves: one to make the device from, and one
// to train predictors on.
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
	// The first half makes the device and the second trains predictors, so that no predictor knows
	// the groups of its device.
	middle := len(order) / 2
	return part(order[:middle]), part(order[middle:])
}

// halveStream separates this use of a seed from others.
const halveStream = 0x5bd1
