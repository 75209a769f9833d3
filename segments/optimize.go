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

// cacheVersion must change whenever normalize or the way of optimizing changes, so that
// files in the cache from an older version of overlapd are not used.
const cacheVersion = 4

// cacheName returns the file name of the optimized form of a model. What ONNX Runtime
// writes at its highest optimization level is valid for one version of ONNX Runtime and one
// device key. It is valid for all batch sizes, because batch dimensions stay open.
func cacheName(hash string, lib *ort.Library, key string) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%d %s ort %s %s", cacheVersion, hash, lib.Version(), key))
	return hex.EncodeToString(sum[:16]) + ".onnx"
}

// cacheKey returns everything that an optimized form depends on besides the hash of the
// model and the version of ONNX Runtime. That includes the name of the model's file, to
// which the form may refer.
func cacheKey(d device, f *models.File) string {
	return d.Key() + " " + filepath.Base(f.Path)
}

// cpuFeatures lists the vector instructions that determine which kernels and memory formats
// the optimizer chooses.
func cpuFeatures() string {
	return fmt.Sprintf("sse4.1=%t avx=%t avx2=%t fma=%t avx512f=%t avx512vnni=%t", cpu.X86.HasSSE41, cpu.X86.HasAVX,
		cpu.X86.HasAVX2, cpu.X86.HasFMA, cpu.X86.HasAVX512F, cpu.X86.HasAVX512VNNI)
}

// errCache is returned if the cache of optimized models cannot be written.
var errCache = errors.New("cache of optimized models")

// probe returns the reason why f cannot be extended, for example a full disk, or nil if it
// can. ONNX Runtime does not report the reason.
func probe(f *os.File) error {
	const enough = 1 << 20 // ONNX Runtime writes large blocks, so this much may be free after a failed write
	end, err := f.Seek(0, io.SeekEnd)
	if err == nil {
		_, err = f.Write(make([]byte, enough))
		err = errors.Join(err, f.Truncate(end))
	}
	return err
}

// memoryDir is a folder in memory.
const memoryDir = "/dev/shm"

// uncached creates a folder in memoryDir that replaces the cache while a model is loaded. It
// also removes old folders that killed processes have left.
func uncached(memoryDir string) (dir string, err error) {
	const name = "overlapd-uncached-"
	left, _ := filepath.Glob(filepath.Join(memoryDir, name+"*")) // the pattern is valid
	for _, path := range left {
		if info, err := os.Lstat(path); err == nil && time.Since(info.ModTime()) > incomingGrace {
			_ = os.RemoveAll(path) // if this fails, the next call tries again
		}
	}
	return os.MkdirTemp(memoryDir, name)
}

// optimize returns the path of the optimized form of f, and creates the form if the cache
// does not hold it. hit reports whether the cache held it.
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

// noProtobuf is ONNX Runtime's message for a model that is larger than protobuf allows.
// Such a form contains only weights that ONNX Runtime has computed; the original weights
// stay in their files.
const noProtobuf = "Protobuf serialization failed"

// optimizing describes a model to optimize, and the path for the result.
type optimizing struct {
	env    *ort.Env
	device device
	file   *models.File

	// inside is how many bytes of weights of the file itself the optimized form may
	// contain.
	inside int64

	path string
}

// write creates the optimized form. If weights is not empty, it names the file, in the same
// folder, for the weights.
func (o *optimizing) write(weights string) error {
	incoming, err := newIncoming(filepath.Dir(o.path))
	if err != nil {
		return err
	}
	defer incoming.Close()
	defer os.Remove(incoming.Name())
	options := ort.SessionOptions{
		Optimize:           true,
		CustomOps:          true,
		OptimizedModelPath: incoming.Name(),
		Folder:             o.file.Folder(),
		LogID:              "optimize",
		Config:             map[string]string{"session.disable_prepacking": "1"}, // this session never runs
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

// writeBeside creates the optimized form with its weights in a separate file. The name of
// that file is new each time, since another process may still be reading the previous one.
// writeBeside first removes the files of earlier attempts, to which no model refers. The
// lock ensures that only one worker does this at a time.
func (o *optimizing) writeBeside() error {
	dir := filepath.Dir(o.path)
	unlock, err := lock(dir)
	if err != nil {
		return err
	}
	defer unlock()
	if kept(o.path) { // another worker has created it in the meantime
		return nil
	}
	stem := strings.TrimSuffix(o.path, ".onnx") + "-"
	left, _ := filepath.Glob(stem + "*.data") // the pattern is valid
	for _, old := range left {
		_ = os.Remove(old) // if this fails, the next call tries again
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

// lock prevents other workers from writing separate weights to a cache, until unlock is
// called or the process ends.
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

// kept reports whether path is a file of the cache that this user or root owns and no one
// else may write to. The check matters because the process runs whatever the file contains.
// If it is false, for a link or a file of another user for example, the form is created
// again.
func kept(path string) bool {
	info, err := os.Lstat(path)
	if err != nil || !info.Mode().IsRegular() || info.Size() == 0 {
		return false
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && (stat.Uid == 0 || int(stat.Uid) == os.Geteuid()) && info.Mode().Perm()&0o022 == 0
}

// finish adds an operator for each output of the optimized model at path that the optimizer
// has replaced by a constant, so that every output has an operator that produces it.
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
	// The file is mapped, so write another one and replace it.
	finished := path + ".finished"
	if err := os.WriteFile(finished, raw, 0o600); err != nil {
		os.Remove(finished)
		return fmt.Errorf("%w: %w", errCache, err)
	}
	return os.Rename(finished, path)
}

// incomingGrace is the age from which an incomplete file is assumed to belong to a process
// that was killed.
const incomingGrace = time.Hour

// incomingPrefix begins the names of incomplete files.
const incomingPrefix = ".incoming-"

// newIncoming creates a file that later becomes part of the cache. It first removes files
// that killed processes have left, because they are as large as models.
func newIncoming(dir string) (*os.File, error) {
	left, _ := filepath.Glob(filepath.Join(dir, incomingPrefix+"*")) // the pattern is valid
	for _, path := range left {
		if info, err := os.Lstat(path); err == nil && time.Since(info.ModTime()) > incomingGrace {
			_ = os.Remove(path) // if this fails, the next call tries again
		}
	}
	f, err := os.CreateTemp(dir, incomingPrefix+"*.onnx")
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errCache, err)
	}
	return f, nil
}

// minIRVersion is the first version of the format in which an initializer is a constant
// unless it is listed as an input. Older files list all initializers as inputs, which
// prevents ONNX Runtime from folding or fusing them.
const minIRVersion = 4

// bridgeSuffix ends the name of the value that replaces an input or an initializer as an
// output of the graph.
const bridgeSuffix = "/overlapd_output"

// leastOutside is the size in bytes from which a weight stays outside the optimized model.
// Smaller weights may determine shapes, and ONNX Runtime does not read other files for
// these.
const leastOutside = 4 << 10

// insideBytes is the most bytes of weights in a model's own file that the optimized form
// may contain as well. While the form is being created, these weights are in memory several
// times.
const insideBytes = 256 << 20

// The peak memory of loading a model for the first time, as a multiple of the size of its
// weights. Matrices that stay in their files take 1.1 times their size, measured with bert
// and with external data; 2 leaves room for weights that ONNX Runtime computes from them.
// The optimizer copies all other weights: resnet50 takes 5.8 times their size.
const (
	insideFactor  = 6
	outsideFactor = 2
)

// LoadBytes returns an upper bound for the memory that the weights of f take while f is
// loaded on the CPU for the first time.
func LoadBytes(f *models.File) (bytes int64) {
	const matrix = 2 // dimensions; weights with more, such as those of convolutions, are reordered
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

// insideWeights returns the bytes of the weights that are stored in f itself.
func insideWeights(f *models.File) (bytes int64) {
	for i := range f.Graph.Initializers {
		if init := &f.Graph.Initializers[i]; init.External == nil {
			bytes += init.Bytes
		}
	}
	return bytes
}

// normalize returns f in the form that is optimized and cut. No weight is an input, an
// operator produces every output, and large weights in other files stay there. Large
// weights in the file itself stay there as well if they have more than inside bytes in all.
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

// bridgeOutputs adds the outputs of f to parts. For an output that no node produces, it
// also adds an Identity operator that does.
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
