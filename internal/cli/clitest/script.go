package clitest

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"
)

// JSON checks one value of the JSON object that was printed last. The
// whole value must match the expression; strings are taken without quotes.
func JSON(ts *testscript.TestScript, neg bool, args []string) {
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
