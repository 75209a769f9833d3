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

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/sim"
	"github.com/overlapd/overlapd/training"
	"github.com/overlapd/overlapd/training/fit"
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
	quad    *training.Dataset // groups of quadruplets, nil without
	solo    []training.SoloTime
	authors map[float64]authorsResults // by load
	minutes []float64                  // loads of the trace, nil without

	// groups are what devices and predictors are made of, by clock: that of all
	// figures, and perhaps another for those that show both.
	groups []groups
}

// groups are measured groups at one clock, by the kind of stock.
type groups struct {
	clock string
	kinds map[string]*training.Dataset
}

// The kinds of stock: of pairs, and of the models of section 7.4, pairs of them among
// them, so that a device knows what each takes alone and in pairs too.
const (
	pairsStock = "pairs"
	quadStock  = "quadruplets"
)

// The authors measured at two clocks: large batches took up to twice as long in their
// groups, each of which ran a hundred times on end, as the same batches took alone on
// their server. Which of them a server under full load has the data does not say.
const (
	servingClock   = "serving clock"   // groups calibrated to the serving logs, see fit.Calibrate
	profilingClock = "profiling clock" // groups as they were measured
)

// atClocks sets the groups, at the serving clock where solo times are known.
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
	serving := groups{servingClock, map[string]*training.Dataset{}}
	for kind, of := range measured.kinds {
		if serving.kinds[kind], _, err = fit.Calibrate(ctx, of, d.soloOf(of)); err != nil {
			return err
		}
	}
	d.groups = []groups{serving, measured}
	return nil
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

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// hashOf names what was read, by content.
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
		fmt.Fprintf(h, "%s %d\n", filepath.Base(path), len(content))
		h.Write(content)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// beyondPairs are the groups of the models of section 7.4, pairs of them among them.
func (d *data) beyondPairs() (*training.Dataset, error) {
	pairs := &training.Dataset{}
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
