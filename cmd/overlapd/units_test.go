package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// unitDir holds what systemd gets.
var unitDir = filepath.Join("..", "..", "systemd")

// directive is one line of a unit.
type directive struct {
	section, key, value string
	line                int
	reason              string // the comment above it
}

// readUnit reads a unit. A comment holds for the directive below it and for
// those of the same key that follow at once, and only for these.
func readUnit(text []byte) (list []directive, err error) {
	var section, comment, key string
	lines := bufio.NewScanner(bytes.NewReader(text))
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		switch name, value, ok := strings.Cut(line, "="); {
		case line == "":
			comment, key = "", ""
		case strings.HasPrefix(line, "#"):
			if key != "" {
				comment, key = "", ""
			}
			comment = strings.TrimSpace(comment + " " + strings.TrimLeft(line, "# "))
		case strings.HasPrefix(line, "[") && strings.HasSuffix(line, "]"):
			section, comment, key = line, "", ""
		case !ok || section == "":
			return nil, fmt.Errorf("line %d: neither a comment nor a directive of a section: %q", n, line)
		default:
			if key != "" && !related(key, name) {
				comment = ""
			}
			key = name
			list = append(list, directive{section, name, value, n, comment})
		}
	}
	return list, lines.Err()
}

// related reports whether two directives are about the same.
func related(a, b string) bool {
	return a == b || strings.HasPrefix(a, "StartLimit") && strings.HasPrefix(b, "StartLimit")
}

func unitFiles(t *testing.T) map[string][]directive {
	t.Helper()
	units := map[string][]directive{}
	for _, name := range []string{"overlapd@.service", "overlapd@.socket", "overlapd-grpc@.socket", filepath.Join("overlapd@cpu.service.d", "cpu.conf"), "overlapd.target"} {
		text, err := os.ReadFile(filepath.Join(unitDir, name))
		if err != nil {
			t.Fatal(err)
		}
		list, err := readUnit(text)
		if err != nil {
			t.Fatalf("reading %s: %v", name, err)
		}
		units[name] = list
	}
	return units
}

// TestUnitsGiveReasons holds every directive to a comment that says why.
func TestUnitsGiveReasons(t *testing.T) {
	for name, list := range unitFiles(t) {
		for _, d := range list {
			if len(strings.Fields(d.reason)) < 3 {
				t.Errorf("systemd/%s:%d: %s says not why: write it above", name, d.line, d.key)
			}
		}
	}
}

func TestReadUnit(t *testing.T) {
	got, err := readUnit([]byte("# Of all.\n\n[Service]\n# Why a,\n# at length.\nA=1\nA=2\nB=3\n# Why c.\nC=4=5\n\nD=6\n"))
	want := []directive{
		{"[Service]", "A", "1", 6, "Why a, at length."}, {"[Service]", "A", "2", 7, "Why a, at length."},
		{"[Service]", "B", "3", 8, ""}, {"[Service]", "C", "4=5", 10, "Why c."}, {"[Service]", "D", "6", 12, ""},
	}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got %+v, %v", got, err)
	}
	for _, text := range []string{"A=1\n", "[Service]\nword\n"} {
		if _, err := readUnit([]byte(text)); err == nil {
			t.Errorf("%q was read", text)
		}
	}
}

// TestUnitsStartWhatIsThere compares the command lines of the units with the
// commands and options of the binary, and paths with what is packaged.
func TestUnitsStartWhatIsThere(t *testing.T) {
	packaged, err := os.ReadFile(filepath.Join("..", "..", "scripts", "deb"))
	if err != nil {
		t.Fatal(err)
	}
	starts := map[string]int{}
	for name, list := range unitFiles(t) {
		for _, d := range list {
			words := strings.Fields(strings.TrimLeft(d.value, "+-@!"))
			if d.key != "ExecStart" && d.key != "ExecReload" || len(words) == 0 {
				continue
			}
			starts[d.key]++
			if err := checkStart(words); err != nil {
				t.Errorf("systemd/%s:%d: %v", name, d.line, err)
			}
			if path := strings.TrimPrefix(words[0], "/"); !bytes.Contains(packaged, []byte(`"$root/`+path+`"`)) {
				t.Errorf("systemd/%s:%d: no package has %s", name, d.line, words[0])
			}
		}
	}
	for _, key := range []string{"ExecStart", "ExecReload"} {
		if starts[key] == 0 {
			t.Errorf("no unit has %s", key)
		}
	}
}

// checkStart returns what is wrong with a command line of overlapd.
func checkStart(words []string) error {
	if filepath.Base(words[0]) != "overlapd" {
		return fmt.Errorf("%s is not overlapd", words[0])
	}
	words = slices.DeleteFunc(slices.Clone(words[1:]), func(w string) bool { return strings.HasPrefix(w, "$") })
	cmd, args, err := root().Find(words)
	if err != nil || cmd.Parent() == nil {
		return errors.Join(err, fmt.Errorf("no command in %q", words))
	}
	if err := cmd.ParseFlags(args); err != nil {
		return err
	}
	given := 0
	cmd.Flags().Visit(func(*pflag.Flag) { given++ })
	if given == 0 || cmd.Flags().NArg() > 0 {
		return fmt.Errorf("%s takes no %q", cmd.CommandPath(), cmd.Flags().Args())
	}
	return nil
}

func TestCheckStart(t *testing.T) {
	for line, good := range map[string]bool{
		"/usr/bin/overlapd serve --config %E/overlapd/%i.toml $OVERLAPD_OPTIONS": true,
		"/usr/bin/overlapd reload --config %E/overlapd/%i.toml":                  true,
		"/usr/bin/overlapd reload --on %i":                                       false,
		"/usr/bin/overlapd serve --konfig %E/overlapd/%i.toml":                   false,
		"/usr/bin/overlapd sreve --config x":                                     false,
		"/usr/bin/overlapd serve --config x y":                                   false,
		"/usr/bin/other serve --config x":                                        false,
	} {
		if err := checkStart(strings.Fields(line)); (err == nil) != good {
			t.Errorf("checking %s: got %v", line, err)
		}
	}
}

// TestDropInChangesOnly fails when the drop-in of the processor says what the
// template says already.
func TestDropInChangesOnly(t *testing.T) {
	units := unitFiles(t)
	template := units["overlapd@.service"]
	for _, d := range units[filepath.Join("overlapd@cpu.service.d", "cpu.conf")] {
		for _, other := range template {
			if d.section == other.section && d.key == other.key && d.value == other.value {
				t.Errorf("cpu.conf:%d: %s=%s is in the template already", d.line, d.key, d.value)
			}
		}
	}
}

// TestUnitsAreVerified lets systemd look at them, where there is one.
func TestUnitsAreVerified(t *testing.T) {
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skip("no systemd-analyze")
	}
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(filepath.Join("..", "..", "scripts", "check-units"), binary).CombinedOutput()
	if err != nil {
		t.Errorf("scripts/check-units: %v\n%s", err, out)
	}
}

// TestReloadFindsItsDaemon: the start and the reload of an instance read the
// same file, so that the reload finds the socket of that instance.
func TestReloadFindsItsDaemon(t *testing.T) {
	files := map[string]string{}
	for _, d := range unitFiles(t)["overlapd@.service"] {
		words := strings.Fields(d.value)
		if i := slices.Index(words, "--config"); i >= 0 && i+1 < len(words) {
			files[d.key] = words[i+1]
		}
	}
	if files["ExecStart"] == "" || files["ExecStart"] != files["ExecReload"] {
		t.Errorf("the files are %q", files)
	}
}
