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

// hashBeside is from how many bytes on a model is hashed while it is loaded. The hash of a
// smaller one takes less than a fifth of a second, and comes first.
const hashBeside = 256 << 20

// errOtherHash is returned of a cached form that was made of other data, in files of which the
// file system says the same.
var errOtherHash = errors.New("the optimized form in the cache was made of other data")

// identity is the hash by which a model is known. That of a large model is computed while the
// model is loaded: until then its optimized form has the name of the stamps of its files, and
// the hash is the end of that name.
type identity struct {
	stamp string // empty for a model that is hashed first
	made  string // the optimized form that was made of it and awaits the hash
	done  chan struct{}
	hash  string // once done is closed
	shown atomic.Bool
	over  atomic.Bool
}

// identify hashes a model, or begins to. The file must stay open until end returns.
func identify(f *models.File, progress worker.ProgressFunc) *identity {
	id := &identity{done: make(chan struct{})}
	hash := func() error {
		id.hash = f.HashWhile(func(done, total int64) bool {
			if id.shown.Load() {
				progress("read", done, total)
			}
			return !id.over.Load()
		})
		close(id.done)
		return nil
	}
	if f.Bytes() < hashBeside {
		id.shown.Store(true)
		_ = hash() // it has none
		return id
	}
	id.stamp = f.Stamp()
	go func() { _ = kindly(hash) }()
	return id
}

// known returns the hash, "" if it is not known yet.
func (id *identity) known() string {
	select {
	case <-id.done:
		return id.hash
	default:
		return ""
	}
}

// wait returns the hash once it is known, and shows how far that is until then.
func (id *identity) wait() string {
	id.shown.Store(true)
	<-id.done
	return id.hash
}

// end stops hashing, and removes a form that was not confirmed.
func (id *identity) end() {
	id.over.Store(true)
	<-id.done
	if id.made != "" {
		_ = os.Remove(id.made) // the next one tries again
	}
}

// cached returns the path of the optimized form of a name in the cache, if there is one. Of
// a model whose hash is not known yet it is one that confirm decides about.
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
	found, _ := filepath.Glob(id.final(path, of)) // the pattern is good
	for _, path := range found {
		if kept(path) {
			return path
		}
	}
	return ""
}

// provisional returns where the optimized form of a name is written: to a file that no other
// worker has, and that does not count as part of the cache until its model is hashed.
func (id *identity) provisional(path string) string {
	if id.stamp == "" {
		return path
	}
	name := fmt.Sprintf("%s%x-%s", incomingPrefix, rand.Uint64(), filepath.Base(path))
	id.made = filepath.Join(filepath.Dir(path), name)
	return id.made
}

func (id *identity) final(path, hash string) string {
	return strings.TrimSuffix(path, ".onnx") + "-" + hash + ".onnx"
}

// confirm returns the hash of the model, of which the form at path was loaded. It makes one
// that was made just now part of the cache; one that was there may be of another model.
func (id *identity) confirm(path string) (hash string, err error) {
	hash = id.wait()
	switch {
	case id.stamp == "":
	case path == id.made:
		_, name, _ := strings.Cut(filepath.Base(path)[len(incomingPrefix):], "-")
		_ = os.Rename(path, id.final(filepath.Join(filepath.Dir(path), name), hash)) // or it is made again at the next start
		id.made = ""
	case !strings.HasSuffix(path, "-"+hash+".onnx"):
		return "", errOtherHash
	}
	return hash, nil
}
