package journal

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/overlapd/overlapd/overlap"
)

// Every error of reading says what to do, behind what is wrong and where.
func TestErrorsHaveRemedies(t *testing.T) {
	in := &reader{name: "some.log", line: 3}
	for _, err := range []error{ErrFormat, ErrVersion, ErrRecord, ErrCheckpoint, ErrLimit} {
		fault := in.fault(err, "why")
		before, remedy, found := strings.Cut(fault.Error(), "; ")
		if !found || !errors.Is(fault, err) || before != "some.log:3: "+err.Error()+": why" || len(remedy) < 20 {
			t.Errorf("%q says not what to do", fault)
		}
	}
}

// A log that cannot be begun says what to do, and keeps why.
func TestOpenWithoutAFolder(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var path *os.PathError
	if _, err := Open(filepath.Join(file, "log"), DefaultOptions()); !errors.As(err, &path) || !strings.Contains(err.Error(), "decisions.log = false") {
		t.Errorf("got %v", err)
	}
}

// Two definitions of services in a log may share an ID, one after the other: the
// replay follows them, and a log that says otherwise is told apart.
func TestReplayOfASlotThatIsUsedAgain(t *testing.T) {
	dir := t.TempDir()
	w, err := Open(dir, quick())
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(testConfig("edf", 2, 1), w, testHeader())
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		m := testConfig("edf", 2, 1).Services[1]
		m.Name = "heir"
		remove := overlap.Event{Kind: overlap.Remove, Service: 1}
		if err := errors.Join(s.Step(1, &remove), s.Step(1, &remove)); !errors.Is(err, overlap.ErrUnknownService) {
			t.Fatal(err)
		}
		for _, e := range []overlap.Event{{Kind: overlap.Add, Definition: m}, {Kind: overlap.Up, Service: 1}} {
			if err := s.Step(2, &e); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	log, err := os.Open(filepath.Join(dir, FileName))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	report, err := Replay("log", log, ReplayOptions{})
	if err != nil || !report.Reproduced || report.Services[1] != "heir" {
		t.Errorf("%v, %+v", err, report)
	}
}
