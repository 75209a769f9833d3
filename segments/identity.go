package segments

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/segments/worker"
)

// hashBeside is the size in bytes from which a model is hashed while it is being loaded.
// The hash of a smaller model takes less than a fifth of a second and is computed first.
const hashBeside = 256 << 20

// errOtherHash is returned if a cached form was made from other data, although the file
// system reports the same stamps for the files.
var errOtherHash = errors.New("the optimized form in the cache was made of other data")

// identity is the hash that identifies a model. The hash of a large model is computed while
// the model is being loaded. The name of its cached form therefore begins with a hash of
// the files' stamps and ends with the hash of the model.
type identity struct {
	// stamp identifies the files without reading the model. It is empty for a model that is
	// hashed first.
	stamp string

	// made is the path of an optimized form that was just made and waits for the hash, or
	// "".
	made string

	// hash is valid once done is closed.
	done chan struct{}
	hash string

	// shown makes the progress of hashing visible. over stops the hashing.
	shown atomic.Bool
	over  atomic.Bool
}

// identify hashes a model, or starts hashing a large one in the background. libraries is the
// hash of the libraries of its operators. The file must stay open until end returns.
func identify(f *models.File, libraries string, progress worker.ProgressFunc) *identity {
	id := &identity{done: make(chan struct{})}
	hash := func() {
		hash := f.HashWhile(func(done, total int64) bool {
			if id.shown.Load() {
				progress("read", done, total)
			}
			return !id.over.Load()
		})
		id.hash = models.HashWith(hash, libraries)
		close(id.done)
	}
	if f.Bytes() < hashBeside {
		id.shown.Store(true)
		hash()
		return id
	}
	id.stamp = f.Stamp() + libraries
	go func() { _ = kindly(func() error { hash(); return nil }) }()
	return id
}

// known returns the hash, or "" if it is not known yet.
func (id *identity) known() string {
	select {
	case <-id.done:
		return id.hash
	default:
		return ""
	}
}

// wait returns the hash once it is known. Until then it reports the progress of hashing.
func (id *identity) wait() string {
	id.shown.Store(true)
	<-id.done
	return id.hash
}

// end stops hashing, and removes an optimized form that was not confirmed.
func (id *identity) end() {
	id.over.Store(true)
	<-id.done
	if id.made != "" {
		_ = os.Remove(id.made) // if this fails, newIncoming removes the file later
	}
}

// cached returns the path of a usable optimized form for the given name in the cache, or
// "". If the hash of the model is not known yet, confirm decides later whether the form is
// the right one.
func (id *identity) cached(path string) string {
	if id.stamp == "" {
		if kept(path) {
			return path
		}
		return ""
	}
	of := id.known()
	if of == "" {
		of = "*"
	}
	found, _ := filepath.Glob(id.final(path, of)) // the pattern is valid
	for _, path := range found {
		if kept(path) {
			return path
		}
	}
	return ""
}

// provisional returns the path to which the optimized form for a name is written. For a
// model that is hashed in the background, it is the path of a file that no other worker
// uses, and that becomes part of the cache only once the hash is known.
func (id *identity) provisional(path string) string {
	if id.stamp == "" {
		return path
	}
	name := fmt.Sprintf("%s%x-%s", incomingPrefix, rand.Uint64(), filepath.Base(path))
	id.made = filepath.Join(filepath.Dir(path), name)
	return id.made
}

// final returns the path in the cache of the optimized form for a name, once the hash is
// known.
func (id *identity) final(path, hash string) string {
	return strings.TrimSuffix(path, ".onnx") + "-" + hash + ".onnx"
}

// confirm waits for the hash of the model whose optimized form at path was loaded, and
// returns it. If the form was just made, confirm adds it to the cache. If it was cached, it
// may belong to another model with the same stamp; then confirm returns errOtherHash.
func (id *identity) confirm(path string) (hash string, err error) {
	hash = id.wait()
	switch {
	case id.stamp == "":
	case path == id.made:
		_, name, _ := strings.Cut(filepath.Base(path)[len(incomingPrefix):], "-")
		_ = os.Rename(path, id.final(filepath.Join(filepath.Dir(path), name), hash)) // if this fails, the next start makes the form again
		id.made = ""
	case !strings.HasSuffix(path, "-"+hash+".onnx"):
		return "", errOtherHash
	}
	return hash, nil
}
