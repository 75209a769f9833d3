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
const cacheVersion = 4

// cacheName names the optimized form of a model. What ONNX Runtime writes at
// its highest level holds for one version of it and the device of that key. It
// does not depend on the batch: batch dimensions stay open.
func cacheName(hash string, lib *ort.Library, key string) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%d %s ort %s %s", cacheVersion, hash, lib.Version(), key))
	return hex.EncodeToString(sum[:16]) + ".onnx"
}

// cacheKey is what an optimized form depends on, besides the hash of the model and ONNX
// Runtime. It may refer to the file of the model by name.
func cacheKey(d device, f *models.File) string {
	return d.key() + " " + filepath.Base(f.Path)
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

// optimize returns the path of the optimized form of f, making it if the cache does not
// hold it.
func optimize(env *ort.Env, d device, f *models.File, id *identity, cacheDir string) (path string, hit bool, err error) {
	if err := os.MkdirAll(cacheDir, 0o700); err != nil {
		return "", false, fmt.Errorf("%w: %w", errCache, err)
	}
	known := id.stamp
	if known == "" {
		known = id.hash
	}
	name := filepath.Join(cacheDir, cacheName(known, env.Library(), cacheKey(d, f)))
	if path := id.cached(name); path != "" {
		return path, true, nil
	}
	o := optimizing{env, d, f, insideBytes, id.provisional(name)}
	err = o.write("")
	if said := (*ort.Error)(nil); errors.As(err, &said) && strings.Contains(said.Message, noProtobuf) {
		if id.stamp != "" {
			o.path, id.made = id.final(name, id.wait()), ""
		}
		err = o.writeBeside()
	}
	return o.path, false, err
}

// noProtobuf is what ONNX Runtime says of a model with more bytes than protobuf can count.
// It has none but what it computes of weights: those themselves stay where they are.
const noProtobuf = "Protobuf serialization failed"

// optimizing is a model that is being optimized, and where its optimized form will be.
type optimizing struct {
	env    *ort.Env
	device device
	file   *models.File
	inside int64 // how many bytes of the weights in file itself may stand in the optimized form
	path   string
}

// write makes the optimized form, with its weights in a file of a name beside it unless that
// is empty.
func (o *optimizing) write(weights string) error {
	incoming, err := newIncoming(filepath.Dir(o.path))
	if err != nil {
		return err
	}
	defer incoming.Close()
	defer os.Remove(incoming.Name())
	options := ort.SessionOptions{
		Optimize:           true,
		OptimizedModelPath: incoming.Name(),
		Folder:             o.file.Folder(),
		LogID:              "optimize",
		Config:             map[string]string{"session.disable_prepacking": "1"}, // for runs that there will not be
	}
	if weights != "" {
		options.Config["session.optimized_model_external_initializers_file_name"] = weights
	}
	o.device.Session(&options, false)
	session, err := o.env.NewSession(normalize(o.file, o.inside), options)
	if err != nil {
		if full := probe(incoming); full != nil {
			return fmt.Errorf("%w: %w", errCache, full)
		}
		return fmt.Errorf("%s: ONNX Runtime cannot load the model: %w", o.file.Path, err)
	}
	if err := session.Close(); err != nil {
		return err
	}
	if err := o.file.Unchanged(); err != nil {
		return err
	}
	if err := o.finish(incoming.Name()); err != nil {
		return err
	}
	if err := os.Rename(incoming.Name(), o.path); err != nil {
		return fmt.Errorf("%w: %w", errCache, err)
	}
	return nil
}

// writeBeside makes the optimized form with its weights beside it, in a file of a name that
// no other has, since somebody may still read the last one. What was left of earlier ones is
// removed: there is no model that refers to it. One worker does so at a time.
func (o *optimizing) writeBeside() error {
	dir := filepath.Dir(o.path)
	unlock, err := lock(dir)
	if err != nil {
		return err
	}
	defer unlock()
	if kept(o.path) { // another worker has made it meanwhile
		return nil
	}
	stem := strings.TrimSuffix(o.path, ".onnx") + "-"
	left, _ := filepath.Glob(stem + "*.data") // the pattern is good
	for _, old := range left {
		_ = os.Remove(old) // the next one tries again
	}
	data, err := os.CreateTemp(dir, filepath.Base(stem)+"*.data")
	if err != nil {
		return fmt.Errorf("%w: %w", errCache, err)
	}
	if err = data.Close(); err == nil {
		err = o.write(filepath.Base(data.Name()))
	}
	if err != nil {
		os.Remove(data.Name())
	}
	return err
}

// lock keeps other workers from writing weights to a cache, until it is unlocked or the
// process ends.
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
// where the optimizer has found it to be a constant.
func (o *optimizing) finish(path string) error {
	f, err := o.file.OpenDerived(path)
	if err != nil {
		return err
	}
	defer f.Close()
	parts := f.Parts()
	nodes := len(parts.Nodes)
	parts.Outputs = nil
	bridgeOutputs(parts, f)
	if len(parts.Nodes) == nodes {
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

// incomingPrefix begins the names of such files.
const incomingPrefix = ".incoming-"

// newIncoming makes a file that is to become part of the cache. Those of makers who
// were killed are removed first: they are as large as models.
func newIncoming(dir string) (*os.File, error) {
	left, _ := filepath.Glob(filepath.Join(dir, incomingPrefix+"*")) // the pattern is good
	for _, path := range left {
		if info, err := os.Lstat(path); err == nil && time.Since(info.ModTime()) > incomingGrace {
			_ = os.Remove(path) // the next one tries again
		}
	}
	f, err := os.CreateTemp(dir, incomingPrefix+"*.onnx")
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

// leastOutside is how many bytes a weight must have to stay outside of the optimized model.
// Smaller ones may decide about shapes, for which ONNX Runtime reads no other file.
const leastOutside = 4 << 10

// insideBytes is how many bytes of weights a model may have in its own file and be optimized
// into one that has them all. While that is made it is in memory several times.
const insideBytes = 256 << 20

// How many times its weights a model takes at most while it is loaded for the first time.
// Matrices that stay where they are take 1.1 times (bert, and external data); twice leaves
// room for what is computed of them. All others the optimizer copies: resnet50 takes 5.8 times.
const (
	insideFactor  = 6
	outsideFactor = 2
)

// LoadBytes returns the most memory that the weights of f take while it is loaded for the first
// time on the CPU.
func LoadBytes(f *models.File) (bytes int64) {
	const matrix = 2 // dimensions: those of convolutions are computed anew
	many := insideWeights(f) > insideBytes
	for i := range f.Graph.Initializers {
		init := &f.Graph.Initializers[i]
		if (many || init.External != nil) && init.Bytes >= leastOutside && len(init.Dims) <= matrix {
			bytes += outsideFactor * init.Bytes
		} else {
			bytes += insideFactor * init.Bytes
		}
	}
	return bytes
}

// insideWeights returns the bytes of the weights that stand in f itself.
func insideWeights(f *models.File) (bytes int64) {
	for i := range f.Graph.Initializers {
		if init := &f.Graph.Initializers[i]; init.External == nil {
			bytes += init.Bytes
		}
	}
	return bytes
}

// normalize returns f in the form that is optimized and cut: no weight is an input, every
// output is made by an operator, and large weights in other files stay there. So do those in
// the file itself if they have more than so many bytes.
func normalize(f *models.File, inside int64) []byte {
	parts := f.Parts()
	parts.IRVersion = max(f.IRVersion, minIRVersion)
	parts.Inputs, parts.Outputs, parts.Initializers = nil, nil, nil
	for _, in := range f.Graph.FeedInputs() {
		parts.Inputs = append(parts.Inputs, in.Raw)
	}
	sum := insideWeights(f)
	for _, init := range f.Graph.Initializers {
		switch {
		case init.Sparse:
		case init.Bytes >= leastOutside && sum > inside:
			parts.Initializers = append(parts.Initializers, f.Outside(init))
		case init.Bytes >= leastOutside:
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
