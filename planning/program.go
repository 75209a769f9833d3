package planning

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
)

// program is a mixed integer linear program. It minimizes the sum of cost·x subject to low ≤ x ≤
// high for each variable and low ≤ Σ coefficient·x ≤ high for each row.
type program struct {
	variables []variable
	rows      []row
}

// variable is a kind of x: its range, its cost and whether it must be whole.
type variable struct {
	low, high, cost float64
	integer         bool
}

// row is a linear constraint.
type row struct {
	terms     []term
	low, high float64
}

// term is a variable, by index, and its coefficient in a row.
type term struct {
	variable    int
	coefficient float64
}

// binary is the kind of variables that are 0 or 1. infinite stands for no limit.
var (
	binary   = variable{high: 1, integer: true}
	infinite = math.Inf(1)
)

// add adds a number of variables of a kind, and returns the index of the first.
func (p *program) add(v variable, count int) int {
	for range count {
		p.variables = append(p.variables, v)
	}
	return len(p.variables) - count
}

// require adds a row.
func (p *program) require(low, high float64, terms ...term) {
	p.rows = append(p.rows, row{terms, low, high})
}

// value returns the cost of x.
func (p *program) value(x []float64) (sum float64) {
	for i, v := range p.variables {
		sum += v.cost * x[i]
	}
	return sum
}

// Tolerances within which a solution counts as feasible and whole. feasibility is relative to the
// largest term of a row.
const (
	feasibility = 1e-6
	integrality = 1e-5
)

// errBroken is wrapped by errors about a solution that violates the program.
var errBroken = errors.New("it breaks the program")

// check rounds the variables that must be whole, and returns an error if the result violates the
// program. It trusts neither the program's author nor the solver.
func (p *program) check(x []float64) error {
	within := func(v, low, high, scale float64) bool {
		return v >= low-feasibility*scale && v <= high+feasibility*scale
	}
	for i, v := range p.variables {
		r := x[i]
		if v.integer {
			r = math.Round(x[i])
		}
		if !(math.Abs(r-x[i]) <= integrality) || !within(r, v.low, v.high, max(1, math.Abs(r))) {
			return fmt.Errorf("%w: x%d is %v, but must be from %v to %v (whole: %v)", errBroken, i, x[i], v.low, v.high, v.integer)
		}
		x[i] = r
	}
	for i, r := range p.rows {
		sum, largest := 0.0, 1.0
		for _, t := range r.terms {
			sum += t.coefficient * x[t.variable]
			largest = max(largest, math.Abs(t.coefficient*x[t.variable]))
		}
		if !within(sum, r.low, r.high, largest) {
			return fmt.Errorf("%w: row c%d is %v, but must be from %v to %v", errBroken, i, sum, r.low, r.high)
		}
	}
	return nil
}

// writeLP writes the program in CPLEX's LP format, which both CBC and HiGHS read.
func (p *program) writeLP(to io.Writer) error {
	w := bufio.NewWriter(to)
	fmt.Fprint(w, "Minimize\n obj:")
	for i, v := range p.variables {
		// LP does not allow an empty sum.
		if v.cost != 0 || i == 0 {
			writeTerm(w, i, term{i, v.cost})
		}
	}
	fmt.Fprint(w, "\nSubject To\n")
	for i, r := range p.rows {
		if r.low == r.high {
			writeRow(w, "c", i, r, "=", r.low)
			continue
		}
		writeRow(w, "c", i, r, "<=", r.high)
		writeRow(w, "d", i, r, ">=", r.low)
	}
	fmt.Fprint(w, "Bounds\n")
	for i, v := range p.variables {
		fmt.Fprintf(w, " %s <= x%d <= %s\n", number(v.low), i, number(v.high))
	}
	fmt.Fprint(w, "General\n")
	for i, v := range p.variables {
		if v.integer {
			fmt.Fprintf(w, " x%d\n", i)
		}
	}
	fmt.Fprint(w, "End\n")
	return w.Flush()
}

// writeRow writes one side of a row, unless that side has no limit.
func writeRow(w io.Writer, name string, i int, r row, relation string, bound float64) {
	if math.IsInf(bound, 0) || len(r.terms) == 0 {
		return
	}
	fmt.Fprintf(w, " %s%d:", name, i)
	for n, t := range r.terms {
		writeTerm(w, n, t)
	}
	fmt.Fprintf(w, " %s %s\n", relation, number(bound))
}

// termsPerLine limits the length of a line, because CBC reads lines into a buffer.
const termsPerLine = 8

// writeTerm writes the n-th term of a sum.
func writeTerm(w io.Writer, n int, t term) {
	end := ""
	if n%termsPerLine == termsPerLine-1 {
		end = "\n "
	}
	fmt.Fprintf(w, " %+.17g x%d%s", t.coefficient, t.variable, end)
}

// number formats a number for a solver, without loss.
func number(v float64) string {
	if math.IsInf(v, 0) {
		return map[bool]string{true: "+inf", false: "-inf"}[v > 0]
	}
	return strconv.FormatFloat(v, 'g', 17, 64)
}
