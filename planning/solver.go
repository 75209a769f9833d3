package planning

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/overlapd/overlapd/executor/child"
	"github.com/overlapd/overlapd/internal/textfile"
)

// The environment variable that names a solver, the name for none, and the remedy of errors.
const (
	solverVariable = "OVERLAPD_SOLVER"
	noSolver       = "none"
	solverRemedy   = "name the program of HiGHS or CBC, install one (Debian: coinor-cbc; or make solver), or give none"
)

// errSolver is wrapped by errors of a solver that failed or returned a wrong answer.
var errSolver = errors.New("the solver failed")

// solver is a program that solves mixed integer linear programs.
type solver struct {
	path string

	// name is highs or cbc, and determines the command line.
	name string
}

// findSolver returns the named solver, or the first one found, or nil if there is none.
func findSolver(named string) (*solver, error) {
	from := "--solver "
	if named == "" {
		named, from = os.Getenv(solverVariable), solverVariable+"="
	}
	if named == noSolver {
		return nil, nil
	}
	candidates := []string{named}
	if named == "" {
		candidates = []string{"highs", "cbc"}
		// This is where make solver installs HiGHS.
		if cache, err := os.UserCacheDir(); err == nil {
			candidates = append(candidates, filepath.Join(cache, "overlapd", "highs-1.15.1", "highs"))
		}
	}
	for _, c := range candidates {
		path, err := exec.LookPath(c)
		if err == nil {
			path, err = filepath.Abs(path)
		}
		if err == nil {
			name := "highs"
			if strings.Contains(filepath.Base(path), "cbc") {
				name = "cbc"
			}
			return &solver{path, name}, nil
		}
		if named != "" {
			return nil, fmt.Errorf("no solver at %s%s: %w; %s", from, named, err, solverRemedy)
		}
	}
	return nil, nil
}

// answer is the result of a solver. bound, optimal and infeasible are the solver's claims.
type answer struct {
	// x is nil without a solution.
	x []float64

	// bound is a lower bound of all solutions.
	bound float64

	// optimal means that no solution is better than x.
	optimal bool

	// infeasible means that there is no solution.
	infeasible bool
}

// The names of a solver's files, and the limits of its process.
const (
	modelFile    = "model.lp"
	startFile    = "start.sol"
	optionsFile  = "options"
	solutionFile = "solution"

	// solverGrace is the time after the time limit in which the solver writes its solution.
	solverGrace      = 2 * time.Second
	maxSolutionBytes = 256 << 20

	// exactGap is the relative gap below which a solution counts as optimal.
	exactGap = "1e-7"
)

// solve runs the solver within a time limit, from a start if one is given. The answer has been
// checked and contradicts neither the program nor the start. Otherwise solve returns an error about
// the solver.
func (s *solver) solve(ctx context.Context, p *program, start []float64, limit time.Duration) (*answer, error) {
	// The solver works in a folder of its own.
	dir, err := os.MkdirTemp("", "overlapd-solver-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	args, err := s.prepare(dir, p, start, max(limit, time.Millisecond))
	if err != nil {
		return nil, err
	}
	// The solver gets a short time beyond its limit to write what it found.
	said, err := s.run(ctx, dir, args, limit+solverGrace)
	if err != nil {
		return nil, fmt.Errorf("%w: %s %w", errSolver, s.path, err)
	}
	solution, err := textfile.ReadRegular(filepath.Join(dir, solutionFile), maxSolutionBytes)
	if err != nil {
		return nil, fmt.Errorf("%w: %s left no solution: %w", errSolver, s.path, err)
	}
	a, err := readAnswer(string(solution), said, len(p.variables))
	if err == nil {
		err = a.believe(p, start)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %s %w", errSolver, s.path, err)
	}
	return a, nil
}

// prepare writes the input files of the solver, and returns its arguments.
func (s *solver) prepare(dir string, p *program, start []float64, limit time.Duration) (args []string, err error) {
	write := func(name string, fill func(io.Writer) error) {
		err = errors.Join(err, textfile.Create(filepath.Join(dir, name), fill))
	}
	seconds := strconv.FormatFloat(limit.Seconds(), 'f', 3, 64)
	write(modelFile, p.writeLP)
	// A start has the format in which the solver writes a solution.
	head, line := "Model status\nUnknown\n\n# Primal solution values\nFeasible\nObjective 0\n# Columns "+strconv.Itoa(len(start)), "x%[1]d %[2]s\n"
	begin := []string{"--read_solution_file", startFile}
	if s.name == "cbc" {
		head, line, begin = "Stopped - objective value 0", "%[1]d x%[1]d %[2]s 0\n", []string{"mips", startFile}
	}
	if start != nil {
		write(startFile, func(w io.Writer) error {
			b := bufio.NewWriter(w)
			fmt.Fprintln(b, head)
			for i, v := range start {
				fmt.Fprintf(b, line, i, number(v))
			}
			return b.Flush()
		})
	} else {
		begin = nil
	}
	if s.name == "cbc" {
		return append(append([]string{modelFile}, begin...), "timeMode", "elapsed", "sec", seconds, "ratio", exactGap, "solve", "solution", solutionFile), err
	}
	write(optionsFile, func(w io.Writer) error {
		_, err := fmt.Fprintf(w, "mip_rel_gap = %s\nmip_abs_gap = 1e-9\n", exactGap)
		return err
	})
	return append(begin, "--options_file", optionsFile, "--time_limit", seconds, "--solution_file", solutionFile, modelFile), err
}

// run runs the solver until it ends, or kills it after the limit, and returns the end of its
// output.
func (s *solver) run(ctx context.Context, dir string, args []string, limit time.Duration) (string, error) {
	cmd := exec.Command(s.path, args...)
	cmd.Dir = dir
	process, err := child.Start(cmd, nil)
	if err != nil {
		return "", fmt.Errorf("failed to start: %w; %s", err, solverRemedy)
	}
	// A solver that ignores its own limit is killed.
	within, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	defer context.AfterFunc(within, process.Kill)()
	<-process.Done()
	switch {
	case ctx.Err() != nil:
		return "", ctx.Err()
	case within.Err() != nil:
		return "", fmt.Errorf("did not end within its time limit and was killed after %v", limit.Round(time.Millisecond))
	case !process.Succeeded():
		return "", fmt.Errorf("ended with %s: %s", process.Status(), child.Excerpt(process.Tail(), 3))
	}
	return process.Tail(), nil
}

// Patterns of the output of CBC and HiGHS: the status of a solution, its bound, and the value of a
// variable.
var (
	statusLine = regexp.MustCompile(`^(?:Model status\n)?(Optimal|Infeasible|Integer infeasible|Stopped|Time limit|[A-Z][a-z]+ limit|Unknown|Unbounded|Primal infeasible)`)
	boundLine  = regexp.MustCompile(`(?m)^ *(?:Dual|Lower) bound:? +(\S+)`)
	valueLine  = regexp.MustCompile(`(?m)^[* ]*(?:\d+ +)?x(\d+) +(\S+)`)
)

// readAnswer parses a solution file, and the bound from the solver's output. Variables without a
// value are 0, because CBC omits them.
func readAnswer(solution, said string, variables int) (*answer, error) {
	status := statusLine.FindStringSubmatch(solution)
	if status == nil {
		return nil, fmt.Errorf("wrote a solution that begins with %.60q", solution)
	}
	a := &answer{bound: math.Inf(-1), optimal: status[1] == "Optimal", infeasible: strings.HasSuffix(strings.ToLower(status[1]), "infeasible") && status[1][0] == 'I'}
	values := valueLine.FindAllStringSubmatch(solution, -1)
	if a.infeasible || len(values) == 0 && !a.optimal {
		return a, nil
	}
	if m := boundLine.FindStringSubmatch(said); m != nil {
		if v, err := strconv.ParseFloat(m[1], 64); err == nil && !math.IsNaN(v) {
			a.bound = v
		}
	}
	a.x = make([]float64, variables)
	for _, m := range values {
		i, err := strconv.Atoi(m[1])
		if err != nil || i >= variables {
			return nil, fmt.Errorf("wrote a solution with %.40q, but there are %d variables", m[0], variables)
		}
		if a.x[i], err = strconv.ParseFloat(m[2], 64); err != nil {
			return nil, fmt.Errorf("wrote a solution with %.40q: %w", m[0], err)
		}
	}
	return a, nil
}

// believe checks the solver's claims: its solution against the program, and its bound against that
// solution and the start. If the start is at least as good as the solution, it replaces it.
func (a *answer) believe(p *program, start []float64) error {
	if a.infeasible && start != nil {
		return errors.New("reports that there is no solution, but it started from one")
	}
	best := math.Inf(1)
	if a.x != nil {
		switch err := p.check(a.x); {
		case err == nil:
			best = p.value(a.x)
		case a.optimal:
			return fmt.Errorf("reports an invalid solution as optimal: %w", err)
		// The solver ran out of time and wrote what it had.
		default:
			a.x = nil
		}
	}
	// With an optimal solution, the solver's bound can be no worse than its value.
	if a.optimal {
		a.bound = max(a.bound, best)
	}
	if start != nil && p.value(start) <= best {
		a.x, best = start, p.value(start)
	}
	if a.bound > best+feasibility*max(1, math.Abs(best)) {
		return fmt.Errorf("reports that no solution is below %v, but there is one of %v", a.bound, best)
	}
	return nil
}
