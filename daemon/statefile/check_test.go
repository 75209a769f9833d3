package statefile

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.etcd.io/bbolt"
)

const testPage = 4096

// made returns a file that bbolt made, with branch and leaf pages, pages that go
// over others, a bucket that lies in its entry, and free pages.
func made(t testing.TB) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "made.db")
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{PageSize: testPage, NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	for round := range 3 {
		err = errors.Join(err, db.Update(func(tx *bbolt.Tx) error {
			many, err := tx.CreateBucketIfNotExists([]byte("many"))
			for i := range 300 {
				err = errors.Join(err, many.Put(fmt.Appendf(nil, "%d-%d", i, round), bytes.Repeat([]byte{'v'}, 50+i)))
			}
			large, lerr := tx.CreateBucketIfNotExists([]byte("large"))
			err = errors.Join(err, lerr, large.Put(fmt.Appendf(nil, "%d", round), make([]byte, 3*testPage)))
			small, serr := tx.CreateBucketIfNotExists([]byte("small"))
			err = errors.Join(err, serr, small.Put([]byte("key"), []byte("value")), large.Delete([]byte("0")))
			_, eerr := tx.CreateBucketIfNotExists([]byte("none"))
			return errors.Join(err, eerr)
		}))
	}
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// openBytes opens a file with this content.
func openBytes(t *testing.T, data []byte) (*File, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "state.db")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := Open(path, checkCommand)
	if after, rerr := os.ReadFile(path); err != nil && (rerr != nil || !bytes.Equal(after, data)) {
		t.Errorf("a file that is refused was changed: %v", rerr)
	}
	return f, err
}

func TestDamage(t *testing.T) {
	whole := made(t)
	if f, err := openBytes(t, whole); err != nil || f.Close() != nil {
		t.Fatalf("the whole file: %v", err)
	}
	each := func(at int, text string) func([]byte) []byte {
		return func(b []byte) []byte {
			for page := 2 * testPage; page < len(b); page += testPage {
				copy(b[page+at:], text)
			}
			return b
		}
	}
	for name, do := range map[string]func([]byte) []byte{
		"no bbolt file":     func([]byte) []byte { return []byte(strings.Repeat("no bbolt file", 99)) },
		"short":             func(b []byte) []byte { return b[:30] },
		"cut":               func(b []byte) []byte { return b[:len(b)/2] },
		"both meta pages":   func(b []byte) []byte { b[40]++; b[testPage+40]++; return b },
		"pages without end": each(12, "\xff\xff\xff\xff"),
		"some pages more":   each(12, "\xff\xff\x00\x00"),
		"many elements":     each(10, "\xff\xff"),
		"kinds":             each(8, "\x20\x00"),
		"numbers":           each(0, "\x07\x00\x00\x00"),
		"elements":          each(16, strings.Repeat("\xff", 16)),
		"nothing":           each(0, strings.Repeat("\x00", 4000)),
	} {
		t.Run(name, func(t *testing.T) {
			began := time.Now()
			if _, err := openBytes(t, do(bytes.Clone(whole))); !errors.Is(err, ErrDamaged) {
				t.Errorf("got %v", err)
			}
			if took := time.Since(began); took > checkTime/2 {
				t.Errorf("that was found out after %v", took)
			}
		})
	}
}

// While the newer meta page is broken, the older one holds, as it does after a
// crash.
func TestOlderMetaPage(t *testing.T) {
	for page := range 2 {
		data := made(t)
		clear(data[page*testPage+16 : page*testPage+80])
		if f, err := openBytes(t, data); err != nil || f.Close() != nil {
			t.Errorf("without meta page %d: %v", page, err)
		}
	}
}

// A check that ends by itself, whatever the reason, has found damage, and one
// that cannot be started has not.
func TestCheckThatFails(t *testing.T) {
	path := filled(t)
	if _, err := Open(path, []string{"/bin/sh", "-c", "echo gone >&2; kill -9 $$"}); !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), "killed: gone") {
		t.Errorf("killed: %v", err)
	}
	if _, err := Open(path, []string{"/nonexistent"}); err == nil || errors.Is(err, ErrDamaged) {
		t.Errorf("not started: %v", err)
	}
}

// Whatever passes the check can be used: read, removed, and written.
func TestWhatPassesCanBeUsed(t *testing.T) {
	whole := made(t)
	random := rand.New(rand.NewPCG(5, 6))
	passed := 0
	const rounds = 80
	for range rounds {
		data := bytes.Clone(whole)
		scribble(data, random)
		f, err := openBytes(t, data)
		switch {
		case errors.Is(err, ErrDamaged):
		case err != nil:
			t.Errorf("got %v", err)
		default:
			passed++
			use(t, f)
		}
	}
	if passed == 0 || passed == rounds {
		t.Errorf("%d of %d files passed; some should", passed, rounds)
	}
}

// scribble damages data, mostly where a page begins.
func scribble(data []byte, random *rand.Rand) {
	for range 1 + random.IntN(4) {
		at := random.IntN(len(data))
		if random.IntN(4) > 0 {
			at = at/testPage*testPage + random.IntN(96)
		}
		for i := range min(1+random.IntN(8), len(data)-at) {
			data[at+i] = byte(random.IntN(256))
		}
	}
}

// use works with a file. That a transaction fails is not what it looks for, but
// that it returns.
func use(t *testing.T, f *File) {
	t.Helper()
	err := f.Update(func(tx *bbolt.Tx) error {
		var names [][]byte
		err := tx.ForEach(func(name []byte, _ *bbolt.Bucket) error { names = append(names, name); return nil })
		for _, name := range names {
			err = errors.Join(err, tx.DeleteBucket(name))
		}
		b, berr := tx.CreateBucket([]byte("new"))
		return errors.Join(err, berr, b.Put([]byte("key"), make([]byte, 9*testPage)))
	})
	if cerr := f.Close(); err != nil && !errors.Is(err, ErrLost) || cerr != nil {
		t.Errorf("%v, closing: %v", err, cerr)
	}
}

// Where the limits of the check cannot be set, because lower ones hold already, a
// whole file is none that is damaged.
func TestCheckUnderLowerLimits(t *testing.T) {
	path := filled(t)
	f, err := Open(path, []string{"/bin/sh", "-c", `ulimit -H -t 30; exec "$0" "$1"`, checkCommand[0], checkCommand[1]})
	if err != nil || f.Close() != nil {
		t.Errorf("got %v", err)
	}
}
