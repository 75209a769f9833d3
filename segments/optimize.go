package segments

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/cpu"
	"golang.org/x/sys/unix"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/ort"
)

// cacheVersion changes whenever normalize or the way of optimizing changes, so
// that files of an older overlapd are not taken.
const cacheVersion = 3

// cacheName names the optimized form of a model. What ONNX Runtime writes at
// its highest level holds for one version of it and the device of that key. It
// does not depend on the batch: batch dimensions stay open.
func cacheName(hash string, lib *ort.Library, key string) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%d %s ort %s %s", cacheVersion, hash, lib.Version(), key))
	return hex.EncodeToString(sum[:16]) + ".onnx"
}

// cpuFeatures names the vector instructions that decide which kernels and
// memory formats the optimizer chooses.
func cpuFeatures() string {
	return fmt.Sprintf("sse4.1=%t avx=%t avx2=%t fma=%t avx512f=%t avx512vnni=%t", cpu.X86.HasSSE41, cpu.X86.HasAVX,
		cpu.X86.HasAVX2, cpu.X86.HasFMA, cpu.X86.HasAVX512F, cpu.X86.HasAVX512VNNI)
}

// errCache is returned when the cache of optimized models cannot be written.
var errCache = errors.New("cache of optimized models")

// probe returns why no more can be written to a file. ONNX Runtime does not say so.
func probe(f *os.File) error {
	const enough = 1 << 20 // what it had room for may be this much less than it wanted to write at once
	end, err := f.Seek(0, io.SeekEnd)
	if err == nil {
		_, err = f.Write(make([]byte, enough))
		err = errors.Join(err, f.Truncate(end))
	}
	return err
}

// memoryDir is a folder in memory. Tests change it.
var memoryDir = "/dev/shm"

// uncached makes a folder in memory that takes the place of the cache while a model is
// loaded. What was left by those who were killed is removed.
func uncached() (dir string, err error) {
	const name = "overlapd-uncached-"
	left, _ := filepath.Glob(filepath.Join(memoryDir, name+"*")) // the pattern is good
	for _, path := range left {
		if info, err := os.Lstat(path); err == nil && time.Since(info.ModTime()) > incomingGrace {
			_ = os.RemoveAll(path) // the next one tries again
		}
	}
	return os.MkdirTemp(memoryDir, name)
}

// optimize returns the path of the optimized form of f, whose hash is given,
// making it if the cache does not hold it.
func optimize(env *ort.Env, d device, f *models.File, hash, cacheDir string) (path string, hit bool, err error) {
	if err := os.MkdirAll(cacheDir, 0o700); err != nil {
		return "", false, fmt.Errorf("%w: %w", errCache, err)
	}
	key := d.key()
	if d.fuses() {
		key += " FusedConv"
	}
	path = filepath.Join(cacheDir, cacheName(hash, env.Library(), key))
	if kept(path) {
		return path, true, nil
	}
	options := ort.SessionOptions{
		Optimize: true,
		LogID:    "optimize",
	}
	d.Session(&options, false)
	if large(f) {
		unlock, err := lock(cacheDir)
		if err != nil {
			return "", false, err
		}
		defer unlock()
		if kept(path) { // another worker has made it meanwhile
			return path, true, nil
		}
		weights, err := beside(&options, path)
		if err != nil {
			return "", false, err
		}
		defer func() {
			if path == "" {
				os.Remove(weights)
			}
		}()
		options.External = f.External()
	}
	incoming, err := newIncoming(cacheDir)
	if err != nil {
		return "", false, err
	}
	defer incoming.Close()
	defer os.Remove(incoming.Name())
	options.OptimizedModelPath = incoming.Name()
	session, err := env.NewSession(normalize(f), options)
	if err != nil {
		if full := probe(incoming); full != nil {
			return "", false, fmt.Errorf("%w: %w", errCache, full)
		}
		return "", false, fmt.Errorf("%s: ONNX Runtime cannot load the model: %w", f.Path, err)
	}
	if err := session.Close(); err != nil {
		return "", false, err
	}
	if err := finish(env, d, incoming.Name()); err != nil {
		return "", false, err
	}
	if err := os.Rename(incoming.Name(), path); err != nil {
		return "", false, fmt.Errorf("%w: %w", errCache, err)
	}
	return path, false, nil
}

// largeBytes is how many bytes of weights a model may have to be optimized into one file.
// Protobuf ends at two gibibytes, and the optimizer may add to them. Tests change it.
var largeBytes int64 = 1 << 30

// large reports whether the weights of a model lie beside its optimized form. Those that
// are external data stay it until then.
func large(f *models.File) bool {
	var sum int64
	for i := range f.Graph.Initializers {
		sum += f.Graph.Initializers[i].Bytes
	}
	return sum > largeBytes
}

// lock keeps other workers from making a large model at the same time, which would take
// its memory twice. It holds for the whole cache, until it is unlocked or the process ends.
func lock(cacheDir string) (unlock func(), err error) {
	dir, err := os.Open(cacheDir)
	if err == nil {
		if err = unix.Flock(int(dir.Fd()), unix.LOCK_EX); err == nil {
			return func() { dir.Close() }, nil
		}
		dir.Close()
	}
	return nil, fmt.Errorf("%w: %w", errCache, err)
}

// beside has the weights of an optimized model written to a file beside path, of a name
// that no other has, since somebody may still read the last one. What was left of earlier
// ones is removed: there is no model at path that refers to it.
func beside(o *ort.SessionOptions, path string) (weights string, err error) {
	stem := strings.TrimSuffix(path, ".onnx") + "-"
	left, _ := filepath.Glob(stem + "*.data") // the pattern is good
	for _, old := range left {
		_ = os.Remove(old) // the next one tries again
	}
	data, err := os.CreateTemp(filepath.Dir(path), filepath.Base(stem)+"*.data")
	if err != nil {
		return "", fmt.Errorf("%w: %w", errCache, err)
	}
	if o.Config == nil {
		o.Config = map[string]string{}
	}
	o.Config["session.optimized_model_external_initializers_file_name"] = filepath.Base(data.Name())
	o.Config["session.disable_prepacking"] = "1" // another copy of the weights, for runs that there will not be
	return data.Name(), data.Close()
}

// kept reports whether the cache holds a file that we made, or root: what it holds
// runs as it is. Links and files of others are what somebody put there who may
// write in the folder; they are made anew.
func kept(path string) bool {
	info, err := os.Lstat(path)
	if err != nil || !info.Mode().IsRegular() || info.Size() == 0 {
		return false
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && (stat.Uid == 0 || int(stat.Uid) == os.Geteuid()) && info.Mode().Perm()&0o022 == 0
}

// finish gives every output of the optimized model at path an operator that makes it,
// where the optimizer has found it to be a constant, and fuses convolutions for a device
// that wants that.
func finish(env *ort.Env, d device, path string) error {
	f, err := models.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	parts := f.Parts()
	nodes := len(parts.Nodes)
	parts.Outputs = nil
	bridgeOutputs(parts, f)
	changed := len(parts.Nodes) != nodes
	if d.fuses() {
		fused, err := fuseConvolutions(env, d, parts, f)
		if err != nil {
			return err
		}
		changed = changed || fused
	}
	if !changed {
		return nil
	}
	raw := parts.Append(make([]byte, 0, parts.Size()))
	// The file is mapped: another one takes its place.
	finished := path + ".finished"
	if err := os.WriteFile(finished, raw, 0o600); err != nil {
		os.Remove(finished)
		return fmt.Errorf("%w: %w", errCache, err)
	}
	return os.Rename(finished, path)
}

// incomingGrace is after how long a file that is being made is taken for that of a
// maker who was killed.
const incomingGrace = time.Hour

// newIncoming makes a file that is to become part of the cache. Those of makers who
// were killed are removed first: they are as large as models.
func newIncoming(dir string) (*os.File, error) {
	left, _ := filepath.Glob(filepath.Join(dir, ".incoming-*")) // the pattern is good
	for _, path := range left {
		if info, err := os.Lstat(path); err == nil && time.Since(info.ModTime()) > incomingGrace {
			_ = os.Remove(path) // the next one tries again
		}
	}
	f, err := os.CreateTemp(dir, ".incoming-*.onnx")
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errCache, err)
	}
	return f, nil
}

// minIRVersion is the first version of the format in which an initializer is a
// constant unless it is listed as an input. Older files list all of them,
// which forbids ONNX Runtime to fold or fuse them.
const minIRVersion = 4

// bridgeSuffix ends the name of an output that is an input or an initializer
// of the graph, so that some operator makes every output.
const bridgeSuffix = "/overlapd_output"

// normalize returns f in the form that is optimized and cut: all weights inside, but
// for those of a large model, none of them an input, and every output made by an
// operator.
func normalize(f *models.File) []byte {
	parts := f.Parts()
	parts.IRVersion = max(f.IRVersion, minIRVersion)
	parts.Inputs, parts.Outputs, parts.Initializers = nil, nil, nil
	for _, in := range f.Graph.FeedInputs() {
		parts.Inputs = append(parts.Inputs, in.Raw)
	}
	outside := large(f)
	for _, init := range f.Graph.Initializers {
		switch {
		case init.Sparse:
		case outside:
			parts.Initializers = append(parts.Initializers, init.Raw)
		default:
			parts.Initializers = append(parts.Initializers, f.Inline(init))
		}
	}
	bridgeOutputs(parts, f)
	return parts.Append(make([]byte, 0, parts.Size()))
}

// bridgeOutputs adds the outputs of a file, behind an operator of their own where
// no node makes them.
func bridgeOutputs(parts *models.Parts, f *models.File) {
	g := &f.Graph
	made := map[string]bool{}
	for i := range g.Nodes {
		for _, name := range g.Nodes[i].Outputs {
			made[name] = true
		}
	}
	for _, out := range g.Outputs {
		if made[out.Name] {
			parts.Outputs = append(parts.Outputs, out.Raw)
			continue
		}
		name := out.Name + bridgeSuffix
		parts.Nodes = append(parts.Nodes, models.Identity(out.Name, name))
		parts.Outputs = append(parts.Outputs, models.AppendValueInfo(nil, name, out.Type))
	}
}
