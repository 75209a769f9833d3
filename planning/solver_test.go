package planning

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// small is min x1 - x0 with 2 x0 + x1 ≥ 1, x0 binary and 0 ≤ x1 ≤ 5: -1 at (1, 0).
func small() *program {
	p := &program{}
	p.add(variable{high: 1, integer: true, cost: -1}, 1)
	p.add(variable{high: 5, cost: 1}, 1)
	p.require(1, infinite, term{0, 2}, term{1, 1})
	return p
}

// fake returns a solver that runs a shell script in the folder of its files.
func fake(t *testing.T, name, script string) *solver {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+script+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	return &solver{path, "highs"}
}

// printing returns a script that leaves a solution and says something.
func printing(solution, says string) string {
	return "cat > solution <<'END'\n" + solution + "\nEND\necho '" + says + "'"
}

const solved = "Model status\nOptimal\n\n# Primal solution values\nFeasible\nObjective -1\n# Columns 2\nx0 1\nx1 0\n# Rows 1\nc0 2"

// TestSolverThatFails meets solvers that crash, hang, lie or write garbage: each is an
// error that says so, and none is believed.
func TestSolverThatFails(t *testing.T) {
	start := []float64{1, 0}
	for name, c := range map[string]struct{ script, want string }{
		"silent":         {"true", "left no solution"},
		"crash":          {"echo out of luck; exit 3", "exit status 3: out of luck"},
		"signal":         {"kill -SEGV $$", "segmentation fault"},
		"hang":           {"sleep 100 & sleep 100", "did not end within its time limit and was killed"},
		"garbage":        {printing("<html>", ""), `begins with "<html>`},
		"truncated":      {printing("Model st", ""), `begins with "Model st`},
		"no number":      {printing(strings.Replace(solved, "x1 0", "x1 none", 1), ""), "x1 none"},
		"NaN":            {printing(strings.Replace(solved, "x1 0", "x1 nan", 1), ""), "reports an invalid solution as optimal"},
		"more variables": {printing(strings.Replace(solved, "x1 0", "x7 0", 1), ""), "there are 2 variables"},
		"broken row":     {printing(strings.Replace(solved, "x0 1", "x0 0", 1), ""), "row c0 is 0"},
		"out of bounds":  {printing(strings.Replace(solved, "x1 0", "x1 9", 1), ""), "x1 is 9, but must be from 0 to 5"},
		"half":           {printing(strings.Replace(solved, "x0 1", "x0 0.5", 1), ""), "x0 is 0.5, but must be"},
		"not the best":   {printing(strings.Replace(solved, "x1 0", "x1 3", 1), ""), "no solution is below 2, but there is one of -1"},
		"false bound":    {printing(solved, "  Dual bound   7"), "no solution is below 7, but there is one of -1"},
		"no solution":    {printing("Model status\nInfeasible", ""), "reports that there is no solution, but it started"},
		"a folder":       {"mkdir solution", "it is a folder; name a file"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			limit := time.Minute // a busy machine starts a shell slowly
			if name == "hang" {
				limit = 100 * time.Millisecond
			}
			a, err := fake(t, "fake", c.script).solve(ctx(), small(), start, limit)
			if !errors.Is(err, errSolver) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %+v, %v; want an error with %q", a, err, c.want)
			}
		})
	}
}

func TestSolverThatWorks(t *testing.T) {
	for name, c := range map[string]struct {
		script     string
		x          []float64
		infeasible bool
	}{
		"optimal":            {printing(solved, "  Dual bound   -1"), []float64{1, 0}, false},
		"rounded":            {printing(strings.Replace(solved, "x0 1", "x0 0.9999999", 1), ""), []float64{1, 0}, false},
		"cbc":                {printing("Optimal - objective value -1\n      0 x0    1   0", ""), []float64{1, 0}, false},
		"infeasible":         {printing("Infeasible - objective value 0", ""), nil, true},
		"integer infeasible": {printing("Integer infeasible - objective value 0", ""), nil, true},
		"out of time":        {printing("Model status\nTime limit reached\n\n# Primal solution values\nNone", ""), nil, false},
		"only relaxed":       {printing("Stopped on time (no integer solution - continuous used) - objective value -1\n 0 x0 0.5 0", ""), nil, false},
	} {
		a, err := fake(t, "fake", c.script).solve(ctx(), small(), nil, time.Minute)
		if err != nil || a.infeasible != c.infeasible || len(a.x) != len(c.x) {
			t.Fatalf("%s: %+v, %v", name, a, err)
		}
		for i, x := range c.x {
			if a.x[i] != x {
				t.Errorf("%s: %v, want %v", name, a.x, c.x)
			}
		}
	}
	// Of no solution in time, and of a worse one, the start is left.
	for _, script := range []string{printing("Model status\nTime limit reached", ""), printing("Stopped on time - objective value 2\n 0 x0 1 0\n 1 x1 3 0", "")} {
		if a, err := fake(t, "fake", script).solve(ctx(), small(), []float64{1, 0}, time.Minute); err != nil || a.x[0] != 1 || a.x[1] != 0 {
			t.Errorf("%s: %+v, %v", script, a, err)
		}
	}
}

// TestSolverIsInterrupted sees a solver killed with its children when nobody waits.
func TestSolverIsInterrupted(t *testing.T) {
	within, cancel := context.WithTimeout(ctx(), 50*time.Millisecond)
	defer cancel()
	if _, err := fake(t, "fake", "sleep 100").solve(within, small(), nil, time.Minute); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}

// TestPlanWithoutItsSolver sees the heuristic's plan stand where the solver fails, and a
// note that says why.
func TestPlanWithoutItsSolver(t *testing.T) {
	services := []Service{{Name: "a", Load: 0.5, Memory: 9}, {Name: "b", Load: 0.3, Memory: 9}, {Name: "c", Load: 0.6, Memory: 12}, {Name: "d", Load: 0.1, Memory: 7}}
	how := alone()
	how.Solver = fake(t, "broken", "exit 1").path
	plan, err := Place(ctx(), services, equalDevices(3, 20), how)
	if err != nil || plan.Solver != heuristic || !strings.Contains(plan.Note, "exit status 1") {
		t.Errorf("%+v, %v", plan, err)
	}
}

func TestFindSolver(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	t.Setenv(solverVariable, "")
	if s, err := findSolver(""); s != nil || err != nil {
		t.Errorf("%v, %v", s, err)
	}
	cbc := fake(t, "cbc", "")
	t.Setenv("PATH", filepath.Dir(cbc.path))
	if s, err := findSolver(""); err != nil || s.path != cbc.path || s.name != "cbc" {
		t.Errorf("%v, %v", s, err)
	}
	if s, err := findSolver(noSolver); s != nil || err != nil {
		t.Errorf("%v, %v", s, err)
	}
	for _, bad := range []string{"/nonexistent/highs", t.TempDir()} {
		t.Setenv(solverVariable, bad)
		if _, err := findSolver(""); err == nil || !strings.Contains(err.Error(), solverVariable+"="+bad) || !strings.Contains(err.Error(), solverRemedy) {
			t.Error(err)
		}
	}
}

// TestSolverInstalled has a real solver prove that a small program is solved, start from a
// solution, and see that another one has none.
func TestSolverInstalled(t *testing.T) {
	installed(t)
	s, _ := findSolver("")
	p := small()
	for _, start := range [][]float64{nil, {1, 3}} {
		a, err := s.solve(ctx(), p, start, 10*time.Second)
		if err != nil || !a.optimal || !near(p.value(a.x), -1) || !near(a.bound, -1) {
			t.Errorf("%+v, %v", a, err)
		}
	}
	p.require(-infinite, 0.5, term{0, 1})
	p.require(0.5, infinite, term{0, 1})
	if a, err := s.solve(ctx(), p, nil, 10*time.Second); err != nil || !a.infeasible {
		t.Errorf("%+v, %v", a, err)
	}
}

func TestWriteLP(t *testing.T) {
	p := small()
	p.add(variable{low: math.Inf(-1), high: infinite}, 1)
	p.require(2, 2, term{2, -0.1})
	p.require(-1, 4, term{1, 1}, term{2, 1e-7})
	var b strings.Builder
	if err := p.writeLP(&b); err != nil {
		t.Fatal(err)
	}
	const want = `Minimize
 obj: -1 x0 +1 x1
Subject To
 d0: +2 x0 +1 x1 >= 1
 c1: -0.10000000000000001 x2 = 2
 c2: +1 x1 +9.9999999999999995e-08 x2 <= 4
 d2: +1 x1 +9.9999999999999995e-08 x2 >= -1
Bounds
 0 <= x0 <= 1
 0 <= x1 <= 5
 -inf <= x2 <= +inf
General
 x0
End
`
	if b.String() != want {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
}
