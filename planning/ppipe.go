package planning

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/overlapd/overlapd/internal/textfile"
)

// maxTableBytes limits the size of a table of block times, and of a case.
const maxTableBytes = 1 << 20

// errTable is wrapped by errors about a table of block times.
var errTable = errors.New("unusable times of blocks")

// ReadBlocks reads the times of a model's blocks on a class of devices, in microseconds by share -
// 1, batch - 1 and block. It reads the files MODEL-CLASS-SHARE.csv of a folder, in the format of
// PPipe's authors: a row is a block, a column a batch size. The folder may also be that of their
// artifact, which contains the one with the files.
func ReadBlocks(folder, model, class string) (times [][][]float64, err error) {
	for _, inside := range []string{"block-timing-tf32", "ppipe/block-timing-tf32"} {
		if d, err := os.Stat(filepath.Join(folder, inside)); err == nil && d.IsDir() {
			folder = filepath.Join(folder, inside)
			break
		}
	}
	for share := 1; share <= maxShare; share++ {
		path := filepath.Join(folder, fmt.Sprintf("%s-%s-%d.csv", model, class, share))
		data, err := textfile.ReadRegular(path, maxTableBytes)
		// Shares are numbered without gaps, and the first must exist.
		if errors.Is(err, fs.ErrNotExist) && share > 1 {
			break
		} else if err != nil {
			return nil, fmt.Errorf("%w: %w; name a folder with a file for each class of devices", errTable, err)
		}
		batches, err := parseBlocks(data)
		if err != nil {
			return nil, &textfile.Fault{File: path, Err: fmt.Errorf("%w: %w", errTable, err)}
		}
		times = append(times, batches)
	}
	return times, nil
}

// parseBlocks returns the columns of a table of times.
func parseBlocks(data []byte) (batches [][]float64, err error) {
	rows, err := csv.NewReader(bytes.NewReader(data)).ReadAll()
	if err != nil {
		return nil, fmt.Errorf("%w; give a row of numbers for each block, with one for each size of batch", err)
	}
	if len(rows) == 0 || len(rows) > maxBlocks || len(rows[0]) > maxBatch {
		return nil, fmt.Errorf("%d rows; give one for each of 1 to %d blocks, with numbers for batches from 1 to at most %d", len(rows), maxBlocks, maxBatch)
	}
	batches = make([][]float64, len(rows[0]))
	for i, row := range rows {
		for b, field := range row {
			v, err := strconv.ParseFloat(strings.TrimSpace(field), 64)
			if err != nil || wrong(v) {
				return nil, fmt.Errorf("row %d, column %d is %.40q; give a number of microseconds from 0", i+1, b+1, field)
			}
			batches[b] = append(batches[b], v)
		}
	}
	return batches, nil
}

// referencePlan holds the fields used of a plan by PPipe's authors, for one service.
type referencePlan struct {
	Throughput float64 `json:"xput"`
	Config     struct {
		Model      string    `json:"dnn_name"`
		Classes    []string  `json:"gpu_name_arr"`
		Target     float64   `json:"sla"`
		Shares     []int     `json:"num_mps_levels"`
		Stages     int       `json:"max_num_parts"`
		Moves      []float64 `json:"transmit_time_us_arr"`
		Fill       float64   `json:"est_xput"`
		Adjustment float64   `json:"hist_adjustment"`
		Scheduling float64   `json:"hist_adjustment_w_scheduling"`
		PerServer  []int     `json:"num_gpu_per_server_arr"`
	} `json:"config"`
}

// errCase is wrapped by errors about such a file. The patterns find the counts of devices and the
// rates of services in its name.
var (
	errCase      = errors.New("not a plan of PPipe's authors")
	countsInName = regexp.MustCompile(`_(\d+(?:-\d+)*)_bw-gbps`)
	ratesInName  = regexp.MustCompile(`_(\d+\.\d+(?:-\d+\.\d+)+)_`)
)

// ReadPPipe reads the problem of a plan by PPipe's authors from the plan and the name of its file,
// and the times of its models' blocks from a folder. It returns the services, the devices and the
// objective of that plan, and the largest number of stages of a pipeline. The counts of devices by
// class are the given ones, or else those in the name.
func ReadPPipe(folder, path string, counts []int) (c *Placement, stages int, err error) {
	data, err := textfile.ReadRegular(path, maxTableBytes)
	if err != nil {
		return nil, 0, err
	}
	plans, rates, counts, err := parsePPipe(data, filepath.Base(path), counts)
	if err != nil {
		return nil, 0, &textfile.Fault{File: path, Err: fmt.Errorf("%w: %w", errCase, err)}
	}
	first := plans[0].Config
	c = &Placement{Kind: kindPipeline, Objective: infinite}
	for i, p := range plans {
		f := p.Config
		// The authors subtract two adjustments from the target before they plan.
		s := Service{Name: f.Model, Rate: rates[i], Target: (f.Target - f.Adjustment - f.Scheduling) / 1000}
		s.Blocks = Blocks{Times: map[string][][][]float64{}, Moves: f.Moves, Fill: f.Fill}
		for k, class := range first.Classes {
			times, err := ReadBlocks(folder, f.Model, class)
			if err != nil {
				return nil, 0, err
			}
			s.Blocks.Times[class] = times[:min(len(times), max(first.Shares[k], 1))]
		}
		for end := range s.Blocks.Times[first.Classes[0]][0][0] {
			s.Blocks.Ends = append(s.Blocks.Ends, end+1)
		}
		c.Services = append(c.Services, s)
		c.Objective = min(c.Objective, p.Throughput/rates[i])
	}
	// The devices of a server share its link, and servers have devices of one class.
	link := 0
	for k, class := range first.Classes {
		for i := range counts[k] {
			if i%max(first.PerServer[k], 1) == 0 {
				link++
			}
			c.Devices = append(c.Devices, Device{Name: fmt.Sprintf("%s-%d", class, i+1), Class: class, Memory: maxNumber, Speed: 1, Link: link})
		}
	}
	return c, first.Stages, nil
}

// maxCounts is the largest number of devices of a case.
const maxCounts = 1_000_000

// parsePPipe reads the plans of a file. It returns them with the rates of their services and,
// unless given, the counts of devices by class.
func parsePPipe(data []byte, name string, given []int) (plans []referencePlan, rates []float64, counts []int, err error) {
	if err := textfile.Unmarshal(data, &plans); err != nil {
		return nil, nil, nil, err
	}
	if len(plans) == 0 {
		return nil, nil, nil, errors.New("it has no plan; give a file with at least one")
	}
	for range plans {
		rates = append(rates, 1)
	}
	if m := ratesInName.FindStringSubmatch(name); m != nil && len(plans) > 1 {
		rates = nil
		for text := range strings.SplitSeq(m[1], "-") {
			v, _ := strconv.ParseFloat(text, 64)
			rates = append(rates, v)
		}
	}
	counts = given
	if m := countsInName.FindStringSubmatch(name); m != nil && given == nil {
		for text := range strings.SplitSeq(m[1], "-") {
			n, _ := strconv.Atoi(text)
			counts = append(counts, n)
		}
	}
	first := plans[0].Config
	classes := len(first.Classes)
	if len(rates) != len(plans) || classes == 0 || len(counts) != classes || len(first.PerServer) != classes || len(first.Shares) != classes {
		return nil, nil, nil, fmt.Errorf("%d models with %d rates, %d classes of devices with %d counts; give them in the file's name, as ..._0.5-0.5_L4-T4_25-75_bw-gbps-10... has them", len(plans), len(rates), classes, len(counts))
	}
	// The counts are numbers from a file's name, so they are checked before devices are made of
	// them.
	sum := 0
	for k, n := range counts {
		if sum += n; n < 0 || n > maxCounts || sum > maxCounts || slices.Contains(first.Classes[:k], first.Classes[k]) {
			return nil, nil, nil, fmt.Errorf("%d devices of class %.40q; give each class once, and at most %d devices in all", n, first.Classes[k], maxCounts)
		}
	}
	for i, p := range plans {
		if wrong(p.Throughput) || rates[i] == 0 {
			return nil, nil, nil, fmt.Errorf("model %d has the rate %v and answers %v; give numbers from 0, and a rate above 0", i+1, rates[i], p.Throughput)
		}
	}
	return plans, rates, counts, nil
}
