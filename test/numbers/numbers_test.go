package numbers

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var (
	check  = flag.Bool("check", false, "run the commands and compare what they print with the pages")
	update = flag.Bool("update", false, "run the commands and write what they print into the pages")
	only   = flag.String("page", "", "only pages whose path matches this regular expression")
)

const root = "../.."

// pages are those whose blocks are checked. Of those in docs/benchmarks every table must say
// where it is from.
func pages(t *testing.T) (list []string) {
	for _, pattern := range []string{"README.md", "docs/*.md", "docs/benchmarks/*.md"} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, found...)
	}
	return list
}

// block is a command of a page, and the lines that it printed.
type block struct {
	command, section string
	from, to         int // lines of the page between the marks
}

// page is a file and what it says of its numbers.
type page struct {
	lines    []string
	blocks   []block
	measured []string
	unsaid   []int // lines at which tables begin of which nothing says where they are from
}

var (
	begin = regexp.MustCompile(`^<!-- numbers: (.+?)(?: # ([^#]+))? -->$`)
	quiet = regexp.MustCompile(`^<!-- measured: (.+) -->$`)
	mark  = regexp.MustCompile(`^<!-- /?(number|measure)`)
	rule  = regexp.MustCompile(`^\|[-:| ]+\|$`)
)

const end = "<!-- /numbers -->"

// parse reads a page.
func parse(text string) (*page, error) {
	p := &page{lines: strings.Split(text, "\n")}
	open, all, said := false, false, false
	for i, line := range p.lines {
		m, q := begin.FindStringSubmatch(line), quiet.FindStringSubmatch(line)
		switch {
		case m != nil && open, line == end && !open:
			return nil, fmt.Errorf("line %d: a block begins within another, or ends that did not begin", i+1)
		case m != nil:
			p.blocks, open = append(p.blocks, block{m[1], m[2], i + 1, 0}), true
		case line == end:
			p.blocks[len(p.blocks)-1].to, open = i, false
		case open:
		case mark.MatchString(line) && q == nil:
			return nil, fmt.Errorf("line %d: %s: want <!-- numbers: COMMAND -->, <!-- numbers: COMMAND # HEADING -->, %s or <!-- measured: COMMAND; DATE, MACHINE -->", i+1, line, end)
		case q != nil:
			p.measured, said = append(p.measured, q[1]), true
			all = all || !strings.Contains(strings.Join(p.lines[:i], "\n"), "\n## ")
		case strings.HasPrefix(line, "## "):
			said = false
		case rule.MatchString(line) && !said && !all:
			p.unsaid = append(p.unsaid, i)
		}
	}
	if open {
		return nil, fmt.Errorf("line %d: the block does not end; write %s below it", p.blocks[len(p.blocks)-1].from, end)
	}
	return p, nil
}

// section returns the lines of Markdown below a heading, all without one.
func section(text, heading string) (string, error) {
	if heading == "" {
		return text, nil
	}
	for part := range strings.SplitSeq("\n"+text, "\n## ") {
		first, rest, _ := strings.Cut(part, "\n")
		if name, _, _ := strings.Cut(first, ":"); name == heading {
			return rest, nil
		}
	}
	return "", fmt.Errorf("the command prints no heading %q", heading)
}

// printed holds what commands printed, so that each runs once.
type printed map[string]string

func (p printed) run(command string) (string, error) {
	if text, ok := p[command]; ok {
		return text, nil
	}
	began := time.Now()
	bin, err := filepath.Abs(filepath.Join(root, "bin"))
	if err != nil {
		return "", err
	}
	cmd := exec.Command("bash", "-euo", "pipefail", "-c", command)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "OUT="+filepath.Join(bin, "numbers"), "DATA="+os.Getenv("OVERLAPD_SHARED_DATA"))
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%w\n%s%s", err, &stderr, out)
	}
	fmt.Printf("%5.0f s  %s\n", time.Since(began).Seconds(), command)
	p[command] = string(out)
	return string(out), nil
}

// TestNumbers finds where every number of the pages comes from and, with -check or -update,
// runs what prints it.
func TestNumbers(t *testing.T) {
	done := printed{}
	for _, path := range pages(t) {
		name, err := filepath.Rel(root, path)
		if err != nil {
			t.Fatal(err)
		}
		if ok, err := regexp.MatchString(*only, name); err != nil {
			t.Fatal(err)
		} else if !ok {
			continue
		}
		t.Run(name, func(t *testing.T) { hold(t, path, done) })
	}
}

// hold compares a page with what its commands print.
func hold(t *testing.T, path string, done printed) {
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	p, err := parse(string(text))
	if err != nil {
		t.Fatal(err)
	}
	if filepath.Base(filepath.Dir(path)) == "benchmarks" {
		for _, i := range p.unsaid {
			t.Errorf("line %d: no mark says where the numbers of this table come from (go doc ./test/numbers)", i)
		}
	}
	for _, m := range p.measured {
		t.Logf("not checked, measured: %s", m)
	}
	if !*check && !*update {
		return
	}
	changed := false
	for i := len(p.blocks) - 1; i >= 0; i-- { // from the last on, so that lines keep their numbers
		b := p.blocks[i]
		if strings.Contains(b.command, "$DATA") && os.Getenv("OVERLAPD_SHARED_DATA") == "" {
			t.Logf("not checked, OVERLAPD_SHARED_DATA names no folder: %s", b.command)
			continue
		}
		got, err := done.run(b.command)
		if err == nil {
			got, err = section(got, b.section)
		}
		if err != nil {
			t.Errorf("line %d: %s: %v", b.from, b.command, err)
			continue
		}
		want := strings.TrimSpace(strings.Join(p.lines[b.from:b.to], "\n"))
		if got = strings.TrimSpace(got); got == want {
			continue
		}
		changed = true
		if !*update {
			t.Errorf("line %d: the page differs from what %s prints (make numbers UPDATE=1 PAGE=%s):\n%s", b.from, b.command, filepath.Base(path), cmp.Diff(want, got))
		}
		p.lines = append(p.lines[:b.from:b.from], append([]string{"", got, ""}, p.lines[b.to:]...)...)
	}
	if changed && *update {
		if err := os.WriteFile(path, []byte(strings.Join(p.lines, "\n")), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// TestParse finds blocks, and tables of which nobody says where they are from.
func TestParse(t *testing.T) {
	table := "| a |\n|---|\n| 1 |\n"
	for _, c := range []struct {
		text     string
		blocks   []block
		measured int
		unsaid   []int
		fault    string
	}{
		{text: "# x\n" + table, unsaid: []int{2}},
		{text: "# x\n<!-- numbers: a b | c # figure 9 -->\n" + table + end + "\n<!-- numbers: d -->\n" + end, blocks: []block{{"a b | c", "figure 9", 2, 5}, {"d", "", 7, 7}}},
		{text: "# x\n<!-- measured: a; b -->\n## y\n" + table, measured: 1},
		{text: "# x\n## y\n<!-- measured: a; b -->\n" + table + "### z\n" + table + "## w\n" + table, measured: 1, unsaid: []int{12}},
		{text: "<!-- numbers: a -->\n", fault: "does not end"},
		{text: end, fault: "did not begin"},
		{text: "<!-- number: a -->\n", fault: "want <!-- numbers"},
	} {
		p, err := parse(c.text)
		if c.fault != "" {
			if err == nil || !strings.Contains(err.Error(), c.fault) {
				t.Errorf("%q: %v, want %s", c.text, err, c.fault)
			}
			continue
		}
		if err != nil {
			t.Errorf("reading %q: %v", c.text, err)
			continue
		}
		if d := cmp.Diff(c.blocks, p.blocks, cmp.AllowUnexported(block{})); d != "" || len(p.measured) != c.measured {
			t.Errorf("%q: the marks differ, or measured numbers (%v): %s", c.text, p.measured, d)
		}
		if d := cmp.Diff(c.unsaid, p.unsaid); d != "" {
			t.Errorf("%q: what nothing measures differs: %s", c.text, d)
		}
	}
}

// TestStale changes a number of a page, which is found and mended.
func TestStale(t *testing.T) {
	const command = `printf '## a: b\n\n| x |\n|---|\n| 1 |\n\n## c\n2\n'`
	path := filepath.Join(t.TempDir(), "page.md")
	if err := os.WriteFile(path, []byte("# p\n<!-- numbers: "+command+" # a -->\n| x |\n|---|\n| 7 |\n"+end+"\nrest\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	*update = true
	defer func() { *update = false }()
	hold(t, path, printed{})
	got, err := os.ReadFile(path)
	if want := "# p\n<!-- numbers: " + command + " # a -->\n\n| x |\n|---|\n| 1 |\n\n" + end + "\nrest\n"; err != nil || string(got) != want {
		t.Errorf("%v: %q, want %q", err, got, want)
	}
	if _, err := section("## a\n1\n", "b"); err == nil {
		t.Error("found a heading that is not there")
	}
}
