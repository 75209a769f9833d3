package hostcheck

import (
	"cmp"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/overlapd/overlapd/cuda"
	"github.com/overlapd/overlapd/cuda/mig"
)

// Options say what a configuration asks of the host, and how to look at the host.
type Options struct {
	// GPU is the name of the GPU, empty for the first one. If it is Wanted, the CPU does not
	// take its place.
	GPU    string
	Wanted bool
	// Services is the number of services that share the GPU.
	Services int

	MPS     MPS
	MIG     MIG
	Runtime Runtime
	// LibraryPath are the folders of LD_LIBRARY_PATH.
	LibraryPath []string

	// User is the user's ID. Paths begin at Root, so that tests need no machine with a GPU.
	User int
	Root string
	// Open opens NVML. Access returns why the user may not read and write a file, Needs the
	// libraries that one is linked with. Try runs a small model on a GPU.
	Open   func() (*cuda.Host, error)
	Access func(path string) error
	Needs  func(path string) ([]string, error)
	Try    func(ctx context.Context, gpu string) error
}

// MPS is what is wanted of MPS. It is off unless Own is set, which returns the directory of the control
// daemon that overlapd starts for a GPU, or Join, with which it uses the one of Directory. Program is
// the control program.
type MPS struct {
	Own       func(uuid string) string
	Join      bool
	Directory string
	Program   string
}

// MIG has the instances that the configuration declares, which the daemon creates if it is the Owner.
// Record returns what daemons before it created.
type MIG struct {
	Instances []mig.Want
	Owner     bool
	Record    func() (mig.Record, error)
}

// Runtime is ONNX Runtime: its file, empty where none was found, with its execution providers. Pinned
// is the CUDA build that overlapd is tested with.
type Runtime struct {
	Path      string
	Providers []string
	Pinned    string
}

// host is the host that is looked at, with what was found so far.
type host struct {
	Options
	Report
	ctx context.Context

	// opened is set once NVML could be opened; silent is why it told nothing nevertheless, or
	// could not be opened.
	opened bool
	silent error
	// target is what services would run on, nil until it is found.
	target *cuda.Target
	// linked are the libraries that ONNX Runtime's provider for CUDA is linked with.
	linked []string
}

// about is what a rule is about, such as one of several files: the words that its sentences are
// filled in with, and how looking at it failed, if it did.
type about struct {
	words map[string]string
	err   error
}

// of returns what a rule is about. Words are pairs of a name in braces and a text.
func of(err error, words ...string) about {
	a := about{map[string]string{}, err}
	a.add(words...)
	if err != nil {
		a.add("why", err.Error())
	}
	return a
}

func (a *about) add(words ...string) {
	for pair := range slices.Chunk(words, 2) {
		a.words[pair[0]] = pair[1]
	}
}

// rule is a sentence about a host and its remedy, in which words in braces are filled in. What it
// is about comes from its section; holds may add words.
type rule struct {
	name, level string
	holds       func(*host, *about) bool
	says        string
	remedy      string
}

// report appends the finding of a rule.
func (h *host) report(r rule, a *about) {
	var words []string
	for name, text := range a.words {
		words = append(words, "{"+name+"}", text)
	}
	fill := strings.NewReplacer(words...)
	h.Findings = append(h.Findings, Finding{r.name, r.level, fill.Replace(r.says), fill.Replace(r.remedy)})
}

// open reads what NVML tells. NVML is closed before anything else is done, since a client of it
// keeps the driver from being changed.
func (h *host) open() {
	nvml, err := h.Open()
	if err != nil {
		h.silent = err
		return
	}
	h.opened = true
	facts, err := nvml.Facts()
	if h.silent = errors.Join(err, nvml.Close()); h.silent == nil {
		h.Facts = &facts
	}
}

// path returns where a path of the host is.
func (h *host) path(p string) string { return filepath.Join("/", h.Root, p) }

func (h *host) there(p string) bool {
	_, err := os.Stat(h.path(p))
	return err == nil
}

// joined lists names in a sentence, each once.
func joined(list []string) string {
	return cmp.Or(strings.Join(slices.Compact(list), ", "), "none")
}
