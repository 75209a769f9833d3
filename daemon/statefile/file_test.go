package statefile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.etcd.io/bbolt"
	"golang.org/x/sys/unix"
)

var bucket = []byte("bucket")

// checkCommand makes this binary check a file, as a child.
var checkCommand = []string{os.Args[0], "check-state"}

func TestMain(m *testing.M) {
	// Else each process that the race detector watches takes a second to end.
	os.Setenv("GORACE", "atexit_sleep_ms=0")
	if len(os.Args) == 2 && os.Args[1] == checkCommand[1] {
		RunCheck()
		return
	}
	os.Exit(m.Run())
}

func opened(t *testing.T, path string) *File {
	t.Helper()
	f, err := Open(path, checkCommand)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func put(f *File, key string, size int) error {
	return f.Update(func(tx *bbolt.Tx) error {
		b, err := tx.CreateBucketIfNotExists(bucket)
		return errors.Join(err, b.Put([]byte(key), make([]byte, size)))
	})
}

func has(f *File, key string) (size int, err error) {
	err = f.View(func(tx *bbolt.Tx) error {
		size = len(tx.Bucket(bucket).Get([]byte(key)))
		return nil
	})
	return size, err
}

// filled returns the path of a state file with an entry.
func filled(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "state.db")
	f := opened(t, path)
	if err := errors.Join(put(f, "key", 100), f.Close()); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestFileKeeps(t *testing.T) {
	path := filled(t)
	f := opened(t, path)
	for i := range 20 {
		if err := put(f, fmt.Sprint(i), i*1000); err != nil {
			t.Fatal(err)
		}
		if got, err := has(f, fmt.Sprint(i)); got != i*1000 || err != nil {
			t.Errorf("entry %d: %d bytes, %v", i, got, err)
		}
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	f = opened(t, path)
	if got, err := has(f, "key"); got != 100 || err != nil {
		t.Errorf("later: %d bytes, %v", got, err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	if err := put(f, "key", 1); err == nil {
		t.Error("a closed file is written to")
	}
}

// What a transaction returns is its own error, and leaves the file in use.
func TestErrorOfATransaction(t *testing.T) {
	f := opened(t, filled(t))
	defer f.Close()
	own := errors.New("own")
	for name, err := range map[string]error{
		"View":    f.View(func(*bbolt.Tx) error { return own }),
		"Update":  f.Update(func(*bbolt.Tx) error { return own }),
		"damaged": f.View(func(*bbolt.Tx) error { return fmt.Errorf("%w: %w", own, ErrDamaged) }),
	} {
		if !errors.Is(err, own) || errors.Is(err, ErrLost) {
			t.Errorf("%s returns %v, want the callback's own error", name, err)
		}
	}
	if err := put(f, "another", 1); err != nil {
		t.Errorf("the file is in use no more: %v", err)
	}
}

func TestFileInUse(t *testing.T) {
	path := filled(t)
	f := opened(t, path)
	if _, err := Open(path, checkCommand); !errors.Is(err, ErrInUse) || !strings.Contains(err.Error(), path) {
		t.Errorf("a second one got %v", err)
	}
	if err := put(f, "key", 1); err != nil {
		t.Errorf("the first one: %v", err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	if err := opened(t, path).Close(); err != nil {
		t.Error(err)
	}
}

func TestFileThatCannotBeHad(t *testing.T) {
	dir := t.TempDir()
	link, pipe, other := filepath.Join(dir, "link"), filepath.Join(dir, "pipe"), filepath.Join(dir, "other")
	if err := errors.Join(os.Symlink(other, link), unix.Mkfifo(pipe, 0o600)); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if _, err := os.Stat(other); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("a link was followed: %v", err)
		}
	}()
	for path, says := range map[string]string{
		dir: "is a directory", link: "put the file itself there", pipe: "move it away", filepath.Join(dir, "none", "state.db"): "no such file",
	} {
		_, err := Open(path, checkCommand)
		if err == nil || errors.Is(err, ErrDamaged) || errors.Is(err, ErrInUse) || !strings.Contains(err.Error(), says) {
			t.Errorf("opening %s: %v, want %q in it", path, err, says)
		}
	}
}

// write writes over a file that another one has open.
func write(t *testing.T, path string, at int64, text []byte) {
	t.Helper()
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = file.WriteAt(text, at)
	if err := errors.Join(err, file.Close()); err != nil {
		t.Fatal(err)
	}
}

// later lets the clock of the file system go on, which counts milliseconds.
func later(t *testing.T, path string) {
	t.Helper()
	before, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	mark := filepath.Join(t.TempDir(), "mark")
	for range 1000 {
		if err := os.WriteFile(mark, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if now, err := os.Stat(mark); err == nil && now.ModTime().After(before.ModTime()) {
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Fatal("the clock of the file system stands")
}

// A file that another program has changed is not touched again, not even if its pages
// claim to be followed by billions of others. Its lock is released, and the next open
// reports the damage.
func TestLost(t *testing.T) {
	for name, c := range map[string]struct {
		do      func(t *testing.T, path string)
		says    string
		damaged bool
	}{
		"pages without end": {func(t *testing.T, path string) {
			for page := range int64(3) {
				write(t, path, (page+2)*int64(os.Getpagesize())+12, []byte{0xFF, 0xFF, 0xFF, 0xFF})
			}
		}, "written to", true},
		"rubbish": {func(t *testing.T, path string) { write(t, path, 0, bytes.Repeat([]byte("rubbish"), 5000)) }, "and has", true},
		"nothing": {func(t *testing.T, path string) { write(t, path, 0, []byte{0}) }, "written to", false},
		"cut": {func(t *testing.T, path string) {
			if err := os.Truncate(path, 5000); err != nil {
				t.Fatal(err)
			}
		}, "and has 5000", true},
		"removed": {func(t *testing.T, path string) {
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
		}, "no such file", false},
		"replaced": {func(t *testing.T, path string) {
			if err := errors.Join(os.WriteFile(path+".new", nil, 0o600), os.Rename(path+".new", path)); err != nil {
				t.Fatal(err)
			}
		}, "another file has replaced it", false},
	} {
		t.Run(name, func(t *testing.T) {
			path := filled(t)
			f := opened(t, path)
			if err := put(f, "another", 10); err != nil {
				t.Fatal(err)
			}
			later(t, path)
			c.do(t, path)
			if _, err := has(f, "key"); !errors.Is(err, ErrLost) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("reading: %v", err)
			}
			if err := f.Lost(); !errors.Is(err, ErrLost) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("later: %v", err)
			}
			if err := put(f, "key", 1); !errors.Is(err, ErrLost) {
				t.Errorf("writing: %v", err)
			}
			if err := f.Close(); err != nil {
				t.Errorf("closing: %v", err)
			}
			again, err := Open(path, checkCommand)
			if got := errors.Is(err, ErrDamaged); got != c.damaged {
				t.Errorf("opening it again: %v", err)
			}
			if err == nil {
				again.Close()
			}
		})
	}
}

// Readers and writers that run at once find the file as they left it.
func TestFileOfMany(t *testing.T) {
	f := opened(t, filled(t))
	var users sync.WaitGroup
	for user := range 6 {
		users.Go(func() {
			for i := range 15 {
				err := put(f, fmt.Sprintf("%d-%d", user, i), 5000)
				_, herr := has(f, "key")
				if err := errors.Join(err, herr); err != nil {
					t.Error(err)
				}
			}
		})
	}
	users.Wait()
	if err := f.Lost(); err != nil {
		t.Error(err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}

// A fault while a transaction runs is an error: the file was cut in the middle.
func TestFaultInATransaction(t *testing.T) {
	path := filled(t)
	f := opened(t, path)
	if err := put(f, "long", 50_000); err != nil {
		t.Fatal(err)
	}
	err := f.View(func(tx *bbolt.Tx) error {
		if err := os.Truncate(path, 0); err != nil {
			return err
		}
		_ = bytes.Clone(tx.Bucket(bucket).Get([]byte("long")))
		return nil
	})
	if !errors.Is(err, ErrLost) || !errors.Is(err, ErrDamaged) {
		t.Errorf("got %v", err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}

// A copy during which there were transactions is made again, and is as one of them left the file.
func TestCopyWhileWriting(t *testing.T) {
	path := filled(t)
	f, err := Open(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	rounds := byte(0)
	put := func() {
		rounds++
		if err := f.Update(func(tx *bbolt.Tx) error {
			b, err := tx.CreateBucketIfNotExists([]byte("copied"))
			for key := range byte(16) {
				err = errors.Join(err, b.Put([]byte{key}, bytes.Repeat([]byte{rounds}, testPage)))
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	put()
	copies := 0
	defer func(was func(io.Writer, io.Reader) (int64, error)) { copyBytes = was }(copyBytes)
	copyBytes = func(out io.Writer, in io.Reader) (int64, error) {
		if copies++; copies < 3 {
			if _, err := io.CopyN(out, in, 4*testPage); err != nil {
				return 0, err
			}
			put()
			put()
		}
		return io.Copy(out, in)
	}
	to := filepath.Join(t.TempDir(), "copy")
	if err := Copy(path, to); err != nil || copies != 3 {
		t.Errorf("%v, after %d tries", err, copies)
	}
	c, err := Open(to, checkCommand)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.View(func(tx *bbolt.Tx) error {
		return tx.Bucket([]byte("copied")).ForEach(func(key, value []byte) error {
			if value[0] != rounds {
				t.Errorf("key %d is of transaction %d, want %d", key, value[0], rounds)
			}
			return nil
		})
	}); err != nil {
		t.Error(err)
	}
	if err := errors.Join(c.Close(), f.Close()); err != nil {
		t.Error(err)
	}
}
