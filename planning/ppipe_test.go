package planning

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// a2 checks a plan by appendix A.2 of PPipe, from the problem and the plan alone: it uses
// nothing of how plans are made. It returns what is violated.
func a2(services []Service, plan *Placement, stages int) (faults []string) {
	fault := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	class, onLink := map[string]string{}, map[int]int{}
	classes := map[string]bool{}
	for _, d := range plan.Devices {
		class[d.Name] = d.Class
		classes[d.Class] = true
		onLink[d.Link]++
	}
	perLink := map[string]float64{}
	for _, d := range plan.Devices {
		perLink[d.Class] = max(perLink[d.Class], 1)
		if d.Link > 0 {
			perLink[d.Class] = max(perLink[d.Class], float64(onLink[d.Link]))
		}
	}
	parts, user := map[string]int{}, map[string]string{}
	least := math.Inf(1)
	for i, s := range services {
		got, blocks := plan.Services[i], s.Blocks
		fill := blocks.Fill
		sum := 0.0
		lists := map[string]int{}
		for _, way := range got.Pipelines {
			from, spent, list := 0, 1.3*float64(way.Batch-1)*1e6/fill, ""
			rate := math.Inf(1)
			for place, stage := range way.Stages {
				to := slices.Index(blocks.Ends, stage.End) + 1
				if from > 0 && stage.Start != blocks.Ends[from-1] || from == 0 && stage.Start != 0 || to <= from {
					fault("%s: stage from %d to %d after block %d", s.Name, stage.Start, stage.End, from)
					return faults
				}
				time := 0.0
				for b := from; b < to; b++ {
					time += max(1, blocks.Times[stage.Class][stage.Share-1][way.Batch-1][b])
				}
				spent += time
				each := 1e6 * float64(way.Batch) / time // of one virtual device
				contenders := float64(stage.Share) * perLink[stage.Class]
				if from > 0 {
					each = min(each, 1e6/max(1, blocks.Moves[from-1])/contenders)
				}
				if to < len(blocks.Ends) {
					each = min(each, 1e6/max(1, blocks.Moves[to-1])/contenders)
					spent += blocks.Moves[to-1] * float64(way.Batch)
				}
				rate = min(rate, each*float64(len(stage.Devices)))
				key := fmt.Sprint(s.Name, " place ", place, " share ", stage.Share)
				for _, name := range stage.Devices {
					if class[name] != stage.Class || user[name] != "" && user[name] != key {
						fault("%s: device %s of %s for %s, and before for %s", s.Name, name, class[name], key, user[name])
					}
					user[name] = key
					if parts[name]++; parts[name] > stage.Share {
						fault("%s: device %s is used %d times", s.Name, name, parts[name])
					}
				}
				list += stage.Class + "/"
				from = to
			}
			if from != len(blocks.Ends) || len(way.Stages) > stages {
				fault("%s: %d stages to block %d", s.Name, len(way.Stages), from)
			}
			if limit := 1000 * s.Target * (1 - blocks.Margin); s.Target > 0 && spent > limit*(1+1e-9) {
				fault("%s: a batch takes %v us of %v", s.Name, spent, limit)
			}
			if way.Rate > rate*(1+1e-6) {
				fault("%s: a pipeline answers %v a second, and is said to answer %v", s.Name, rate, way.Rate)
			}
			sum += min(rate, way.Rate)
			lists[list]++
		}
		// One pipeline for each list of the full length, the last stages of which may be
		// left out: no more pipelines begin as a list than there are longer ones.
		for prefix := range lists {
			places := strings.Split(strings.TrimSuffix(prefix, "/"), "/")
			for n := range len(places) + 1 {
				head := strings.Join(places[:n], "/") + "/"
				if n == 0 {
					head = ""
				}
				count := 0
				for other, c := range lists {
					if strings.HasPrefix(other, head) {
						count += c
					}
				}
				if most := math.Pow(float64(len(classes)), float64(stages-n)); float64(count) > most {
					fault("%s: %d pipelines begin with %q, at most %v can", s.Name, count, head, most)
				}
			}
		}
		least = min(least, sum/s.Rate)
	}
	if plan.Objective > least*(1+1e-6) || plan.Bound < plan.Objective {
		fault("objective %v, bound %v, and pipelines give %v", plan.Objective, plan.Bound, least)
	}
	return faults
}

// ppipeCases returns the plans of PPipe's authors with a suffix that are there, and the
// folder with the times of blocks.
func ppipeCases(t testing.TB, suffix string) (plans []string, blocks string) {
	t.Helper()
	dir := filepath.Join(os.Getenv("OVERLAPD_SHARED_DATA"), "ppipe")
	plans, _ = filepath.Glob(filepath.Join(dir, "plans-*", "*_"+suffix+".json"))
	if len(plans) == 0 {
		t.Skip("OVERLAPD_SHARED_DATA does not name the folder with the data of PPipe's artifact")
	}
	return plans, filepath.Join(dir, "block-timing-tf32")
}

// TestReferencePlans holds plans against those that PPipe's authors have of Gurobi, and
// against appendix A.2.
func TestReferencePlans(t *testing.T) {
	for suffix, plan := range map[string]func(ctx context.Context, services []Service, devices []Device, stages int, how Search) (*Placement, error){
		"v4": Pipe, "bl": Pipe, "dart-r": Chains,
	} {
		t.Run(suffix, func(t *testing.T) {
			paths, blocks := ppipeCases(t, suffix)
			for _, path := range paths {
				c, stages, err := ReadPPipe(blocks, path, nil)
				if err != nil {
					t.Fatal(err)
				}
				if suffix == "bl" {
					stages = 1
				}
				p, err := plan(ctx(), c.Services, c.Devices, stages, alone())
				if err != nil {
					t.Errorf("%s: %v", path, err)
					continue
				}
				if faults := a2(c.Services, p, stages); len(faults) > 0 {
					t.Errorf("%s: %q", path, faults)
				}
				ratio, line := p.Objective/c.Objective, fmt.Sprintf("%.5f of the reference, %.4f of the bound, in %.4f s: %s", p.Objective/c.Objective, p.Objective/p.Bound, p.Seconds, filepath.Base(path))
				t.Log(line)
				if few := strings.Contains(path, "plans-ablation") && suffix != "dart-r"; few && ratio < 0.995 {
					t.Error(line)
				}
			}
		})
	}
}

// FuzzPPipe reads tables and plans, whatever they hold, and plans what comes out.
func FuzzPPipe(f *testing.F) {
	const name = "case_0.5-0.5_A-B_2-3_bw-gbps-10_v4.json"
	config := `{"xput": 9, "config": {"dnn_name": "m", "gpu_name_arr": ["A", "B"], "sla": 30000, "num_mps_levels": [2, 1], "max_num_parts": 2,
		"transmit_time_us_arr": [500], "est_xput": 200, "hist_adjustment": 3000, "num_gpu_per_server_arr": [2, 2]}}`
	f.Add([]byte("2000,3000\n3000,4000\n"), []byte("["+config+"]"), "case_A-B_2-3_bw-gbps-10_v4.json")
	f.Add([]byte("1\n"), []byte("["+config+","+strings.Replace(config, `"m"`, `"n"`, 1)+"]"), name)
	f.Add([]byte("1,2\n3\n"), []byte(`[{}]`), name)
	f.Add([]byte("-1,NaN\n"), []byte(`[]`), "")
	f.Fuzz(func(t *testing.T, table, plan []byte, name string) {
		batches, err := parseBlocks(table)
		for _, blocks := range batches {
			if err == nil && (len(blocks) != len(batches[0]) || slices.ContainsFunc(blocks, wrong)) {
				t.Fatalf("%v of %q", batches, table)
			}
		}
		plans, rates, counts, err2 := parsePPipe(plan, name, nil)
		if err != nil || err2 != nil || len(plans) > 3 || slices.Max(counts) > 20 {
			return
		}
		var services []Service
		var devices []Device
		for i, p := range plans {
			s := Service{Name: p.Config.Model, Rate: rates[i], Target: p.Config.Target / 1000, Blocks: Blocks{Moves: p.Config.Moves, Fill: p.Config.Fill, Times: map[string][][][]float64{}}}
			for end := range batches[0] {
				s.Blocks.Ends = append(s.Blocks.Ends, end+1)
			}
			for _, class := range plans[0].Config.Classes {
				s.Blocks.Times[class] = [][][]float64{batches}
			}
			services = append(services, s)
		}
		for k, n := range counts {
			for i := range n {
				devices = append(devices, Device{Name: fmt.Sprint(k, "-", i), Class: plans[0].Config.Classes[k], Memory: 1, Speed: 1})
			}
		}
		made, err := Pipe(ctx(), services, devices, min(plans[0].Config.Stages, 2), Search{Solver: noSolver, Limit: time.Second})
		if err != nil {
			if !errors.Is(err, errNoPlan) {
				t.Error(err)
			}
			return
		}
		if err := made.Fits(made.Services, made.Devices); err != nil {
			t.Error(err)
		}
	})
}
