package clitest

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/overlapd/overlapd/ort"
)

// Commands are commands of scripts by name.
type Commands = map[string]func(ts *testscript.TestScript, neg bool, args []string)

// Scripts runs the shell sessions in testdata/script of a program. Besides testscript's own
// commands and those of the program they have
//
//	json PATH [REGEXP]    looks into the JSON object on the last standard output
//	perfetto FILE         checks a trace by the rules of Perfetto
//
// and the condition [ort], which holds where ONNX Runtime is.
func Scripts(t *testing.T, own Commands) {
	library, missing := ort.Find() // the path is empty where it is missing
	examples, err := filepath.Abs(filepath.Join("..", "..", "docs", "examples"))
	if err != nil {
		t.Fatal(err)
	}
	commands := Commands{"json": checkJSON, "perfetto": checkTrace}
	maps.Copy(commands, own)
	testscript.Run(t, testscript.Params{
		Dir:                 filepath.Join("testdata", "script"),
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(e *testscript.Env) error {
			// Nothing is written outside the folder of the script.
			e.Setenv("HOME", filepath.Join(e.WorkDir, "home"))
			e.Setenv("XDG_CACHE_HOME", filepath.Join(e.WorkDir, "cache"))
			e.Setenv("XDG_STATE_HOME", filepath.Join(e.WorkDir, "state"))
			e.Setenv("EXAMPLES", examples)
			e.Setenv("GORACE", os.Getenv("GORACE"))
			e.Setenv("CORES", strconv.Itoa(runtime.NumCPU()))
			e.Setenv(ort.PathVariable, library)
			return nil
		},
		Condition: func(condition string) (bool, error) {
			if condition != "ort" {
				return false, fmt.Errorf("unknown condition %q", condition)
			}
			return missing == nil, nil
		},
		Cmds: commands,
	})
}

// checkJSON checks one value of the JSON object that was printed last. The
// whole value must match the expression; strings are taken without quotes.
func checkJSON(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) < 1 || len(args) > 2 {
		ts.Fatalf("usage: json PATH [REGEXP]")
	}
	var object map[string]any
	d := json.NewDecoder(strings.NewReader(ts.ReadFile("stdout")))
	d.UseNumber()
	ts.Check(d.Decode(&object))
	if d.More() {
		ts.Fatalf("more than one JSON value was printed")
	}
	value, err := look(object, args[0])
	if err == nil && len(args) == 2 {
		ok := regexp.MustCompile("^(?:" + args[1] + ")$").MatchString(text(value))
		if !ok {
			err = fmt.Errorf("%s is %s", args[0], text(value))
		}
	}
	if neg && err == nil {
		ts.Fatalf("%s is %s", args[0], text(value))
	}
	if !neg {
		ts.Check(err)
	}
}

var errNoValue = errors.New("no such value")

// look follows a path such as runs[0].model.
func look(value any, path string) (any, error) {
	for _, step := range strings.FieldsFunc(path, func(r rune) bool { return strings.ContainsRune(".[]", r) }) {
		switch v := value.(type) {
		case map[string]any:
			next, ok := v[step]
			if !ok {
				return nil, fmt.Errorf("%w: %s in %s", errNoValue, step, path)
			}
			value = next
		case []any:
			i, err := strconv.Atoi(step)
			if err != nil || i < 0 || i >= len(v) {
				return nil, fmt.Errorf("%w: %s in %s, which has %d elements", errNoValue, step, path, len(v))
			}
			value = v[i]
		default:
			return nil, fmt.Errorf("%w: %s in %s", errNoValue, step, path)
		}
	}
	return value, nil
}

func text(value any) string {
	if s, ok := value.(string); ok {
		return s
	}
	b, err := json.Marshal(value)
	if err != nil {
		return err.Error()
	}
	return string(b)
}
