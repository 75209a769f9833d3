package conformance

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"

	"github.com/overlapd/overlapd/ort"
)

// task is what a child is told first; the models follow, one in a line.
type task struct {
	Cache string `json:"cache"`
}

// event is what a child says, one in a line: that ONNX Runtime has run the
// model correctly, or its result.
type event struct {
	Plain  bool    `json:"plain,omitempty"`
	Result *Result `json:"result,omitempty"`
}

// Child compares the models named on in and writes what became of them to out,
// line by line.
func Child(in io.Reader, out io.Writer) (err error) {
	path, err := ort.Find()
	if err != nil {
		return err
	}
	lib, err := ort.Open(path)
	if err != nil {
		return err
	}
	// One thread, so that sums are formed in one order.
	env, err := lib.NewEnv(ort.EnvOptions{Name: "conformance", IntraThreads: 1, SharedArena: true, LogLevel: ort.LogFatal})
	if err != nil {
		return err
	}
	defer func() {
		if closeErr := env.Close(); err == nil {
			err = closeErr
		}
	}()
	decoder, encoder := json.NewDecoder(bufio.NewReader(in)), json.NewEncoder(out)
	var t task
	if err := decoder.Decode(&t); err != nil {
		return fmt.Errorf("task: %w", err)
	}
	c := checker{env: env, cache: t.Cache}
	// If nobody reads it, writing the result fails as well.
	c.plain = func() { _ = encoder.Encode(event{Plain: true}) }
	for {
		var m model
		switch err := decoder.Decode(&m); {
		case err == io.EOF:
			return nil
		case err != nil:
			return fmt.Errorf("model: %w", err)
		}
		r := c.check(m)
		if err := encoder.Encode(event{Result: &r}); err != nil {
			return err
		}
	}
}
