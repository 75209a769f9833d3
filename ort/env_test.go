package ort

import (
	"errors"
	"strings"
	"testing"

	"github.com/overlapd/overlapd/models"
)

func TestEnvReportsLeaks(t *testing.T) {
	e, err := openLibrary(t).NewEnv(EnvOptions{IntraThreads: 1})
	if err != nil {
		t.Fatal(err)
	}
	s, err := e.NewSession(add().encode(), SessionOptions{})
	if err != nil {
		t.Fatal(err)
	}
	p, err := NewProgram([]*Session{s})
	if err != nil {
		t.Fatal(err)
	}
	v, err := e.NewTensor(models.Float32, []int64{1})
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		word string
		next closer
	}{{"1 values", v}, {"1 programs", p}, {"1 sessions", s}} {
		err := e.Close()
		if !errors.Is(err, ErrLeak) || !strings.Contains(err.Error(), step.word) {
			t.Errorf("%q is not in: %v", step.word, err)
		}
		if err := step.next.Close(); err != nil {
			t.Error(err)
		}
	}
	if err := e.Close(); err != nil {
		t.Errorf("with everything closed: %v", err)
	}
	if err := e.Close(); !errors.Is(err, ErrClosed) {
		t.Errorf("the second time: %v", err)
	}
}

func TestOneEnv(t *testing.T) {
	l := openLibrary(t)
	for range 3 {
		e, err := l.NewEnv(EnvOptions{IntraThreads: 1})
		if err != nil {
			t.Fatal(err)
		}
		if e.Library() != l {
			t.Error("the Env is of another library")
		}
		if _, err := l.NewEnv(EnvOptions{}); !errors.Is(err, ErrEnvOpen) {
			t.Errorf("a second Env: %v", err)
		}
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestEnvOptionErrors(t *testing.T) {
	l := openLibrary(t)
	if e, err := l.NewEnv(EnvOptions{IntraThreads: -1}); err == nil {
		t.Errorf("a pool of -1 threads was made: %v", e.Close())
	}
	e, err := l.NewEnv(EnvOptions{IntraThreads: 2, Spin: true, Name: "again"})
	if err != nil {
		t.Fatalf("after a failure: %v", err)
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
}
