package conformance

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"time"
)

// maxReason is how much of a child's last words a result keeps.
const maxReason = 1 << 10

// parent leads child processes through models.
type parent struct {
	options Options
	cache   string
	report  *Report
	done    int
}

// lead lets one child work on models until all are done or the child dies. It
// returns how many have a result, the one that the child died of included.
func (p *parent) lead(ctx context.Context, models []model) (int, error) {
	inTime, cancel := context.WithCancel(ctx)
	defer cancel()
	child := exec.CommandContext(inTime, p.options.Child[0], p.options.Child[1:]...)
	in, err := tasks(p.cache, models)
	if err != nil {
		return 0, err
	}
	child.Stdin = in
	var words tail
	child.Stderr = &words
	out, err := child.StdoutPipe()
	if err != nil {
		return 0, err
	}
	if err := child.Start(); err != nil {
		return 0, err
	}
	late := time.AfterFunc(p.options.Timeout, cancel)
	defer late.Stop()
	done, plain := 0, false
	decoder := json.NewDecoder(out)
	for done < len(models) {
		var e event
		if decoder.Decode(&e) != nil {
			break
		}
		late.Reset(p.options.Timeout)
		if plain = e.Plain; e.Result != nil {
			done++
			p.add(*e.Result)
		}
	}
	_, _ = io.Copy(io.Discard, out) // how the child ended says more
	err = child.Wait()
	switch {
	case ctx.Err() != nil:
		return done, ctx.Err()
	case done == len(models) && err != nil:
		return done, fmt.Errorf("the child failed after its last model: %w: %s", err, words.String())
	case done == len(models):
		return done, nil
	}
	return p.died(models[done], done, plain, err, words.String())
}

// died counts a model that a child did not survive.
func (p *parent) died(m model, done int, plain bool, err error, words string) (int, error) {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return done, errors.New("the child ended early")
	case !errors.As(err, &exit) || exit.ExitCode() == 1:
		return done, fmt.Errorf("the child failed: %w: %s", err, words)
	}
	r := Result{Model: m.Name, Outcome: Failed, Reason: fmt.Sprintf("the process died: %v: %s", err, words)}
	if !plain {
		r.Outcome = Skipped
	}
	p.add(r)
	return done + 1, nil
}

func (p *parent) add(r Result) {
	p.report.add(r)
	p.done++
	if p.options.Progress != nil {
		p.options.Progress(p.done, p.report.Models)
	}
}

func tasks(cache string, models []model) (io.Reader, error) {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	err := encoder.Encode(task{Cache: cache})
	for _, m := range models {
		err = errors.Join(err, encoder.Encode(m))
	}
	return &b, err
}

// tail keeps the end of what is written to it.
type tail struct{ b []byte }

func (t *tail) Write(p []byte) (int, error) {
	t.b = append(t.b, p...)
	if extra := len(t.b) - maxReason; extra > 0 {
		t.b = append(t.b[:0], t.b[extra:]...)
	}
	return len(p), nil
}

func (t *tail) String() string { return strings.TrimSpace(string(t.b)) }
