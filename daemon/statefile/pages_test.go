package statefile

import (
	"bytes"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.etcd.io/bbolt"
	"pgregory.net/rapid"
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

func checkBytes(data []byte) error { return check(bytes.NewReader(data), int64(len(data))) }

// first returns where the first page of this kind begins that m, the newest
// meta page, leads to.
func first(t testing.TB, data []byte, kind uint16) int {
	t.Helper()
	m, err := newestMeta(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	p := &pages{bytes.NewReader(data), m, make([]byte, m.high)}
	if err := p.walk(m.root, bounds{}, 0); err != nil {
		t.Fatal(err)
	}
	if kind == freePage {
		return int(m.freelist) * testPage
	}
	for id, use := range p.use {
		if use == reached && order.Uint16(data[id*testPage+8:]) == kind && order.Uint64(data[id*testPage:]) == uint64(id) {
			return id * testPage
		}
	}
	t.Fatalf("no page is of kind %d", kind)
	return 0
}

// newest returns where the content of the newer meta page begins.
func newest(data []byte) int {
	if order.Uint64(data[headerBytes+48:]) > order.Uint64(data[testPage+headerBytes+48:]) {
		return headerBytes
	}
	return testPage + headerBytes
}

// sign puts the checksum of a meta page right.
func sign(meta []byte) {
	sum := fnv.New64a()
	sum.Write(meta[:metaBytes-8])
	order.PutUint64(meta[metaBytes-8:], sum.Sum64())
}

func TestCheckOfDamage(t *testing.T) {
	whole := made(t)
	if err := checkBytes(whole); err != nil {
		t.Fatalf("the whole file: %v", err)
	}
	branch, leaf, list := first(t, whole, branchPage), first(t, whole, leafPage), first(t, whole, freePage)
	put := func(at int, size int, value uint64) func([]byte) []byte {
		return func(b []byte) []byte {
			var text [8]byte
			order.PutUint64(text[:], value)
			copy(b[at:at+size], text[:])
			return b
		}
	}
	metaSays := func(at int, size int, value uint64) func([]byte) []byte {
		return func(b []byte) []byte {
			m := newest(b)
			b = put(m+at, size, value)(b)
			sign(b[m:])
			return b
		}
	}
	firstChild := order.Uint64(whole[branch+headerBytes+8:])
	firstKey := branch + headerBytes + int(order.Uint32(whole[branch+headerBytes:]))
	for name, c := range map[string]struct {
		do   func([]byte) []byte
		says string
	}{
		"no bbolt file":             {func([]byte) []byte { return []byte(strings.Repeat("no bbolt file", 99)) }, "no bbolt file"},
		"short":                     {func(b []byte) []byte { return b[:30] }, "ends within a page"},
		"cut":                       {func(b []byte) []byte { return b[:order.Uint64(b[newest(b)+40:])*testPage-1] }, "should have"},
		"both meta pages":           {func(b []byte) []byte { b[40]++; b[testPage+40]++; return b }, "checksum"},
		"version":                   {func(b []byte) []byte { b[20]++; b[testPage+20]++; return b }, "version"},
		"pages of 3 bytes":          {func(b []byte) []byte { b = put(24, 4, 3)(b); sign(b[16:]); return b[:testPage] }, "pages of 3 bytes"},
		"no pages":                  {metaSays(40, 8, 0), "should have 0 pages"},
		"root outside":              {metaSays(16, 8, 1<<40), "there is no page"},
		"root is a meta page":       {metaSays(16, 8, 1), "there is no page 1"},
		"free list outside":         {metaSays(32, 8, 1<<63), "there is no page"},
		"free list is a leaf":       {metaSays(32, 8, uint64(leaf/testPage)), "twice"},
		"leaf without end":          {put(leaf+12, 4, 0xFFFFFFFF), "goes over pages that do not exist"},
		"branch without end":        {put(branch+12, 4, 0xFFFFFF), "goes over pages that do not exist"},
		"free list without end":     {put(list+12, 4, 0x7FFFFFFF), "goes over pages that do not exist"},
		"another page":              {put(leaf, 8, 3+uint64(leaf/testPage)), "says that it is page"},
		"kind of a leaf":            {put(leaf+8, 2, 0x20), "kind 0x20"},
		"branch without elements":   {put(branch+10, 2, 0), "kind 0x1 with 0 elements"},
		"more elements than bytes":  {put(leaf+10, 2, 0xFFFF), "no room for 65535 elements"},
		"circle":                    {put(branch+headerBytes+8, 8, uint64(branch/testPage)), "used twice"},
		"child twice":               {put(branch+2*headerBytes+8, 8, firstChild), "used twice"},
		"key elsewhere":             {put(leaf+headerBytes+4, 4, 5), "not where it should be"},
		"no key":                    {put(leaf+headerBytes+8, 4, 0), "not where it should be"},
		"value without end":         {put(leaf+headerBytes+12, 4, 0xFFFFFFF0), "not where it should be"},
		"key out of order":          {put(firstKey, 1, 0xFF), "not in order"},
		"list of another kind":      {put(list+8, 2, leafPage), "no list of free pages"},
		"more free pages than room": {put(list+10, 2, 0xFFFE), "no room for 65534 free pages"},
		"endless list":              {func(b []byte) []byte { return put(list+headerBytes, 8, 1<<62)(put(list+10, 2, manyFree)(b)) }, "no room for"},
		"free and used":             {put(list+headerBytes, 8, uint64(leaf/testPage)), "is not free"},
		"free twice":                {func(b []byte) []byte { copy(b[list+headerBytes:list+headerBytes+8], b[list+headerBytes+8:]); return b }, "is not free"},
		"free and outside":          {put(list+headerBytes, 8, 1<<50), "is not free"},
		"page forgotten":            {put(list+10, 2, uint64(order.Uint16(whole[list+10:]))-1), "neither used nor free"},
	} {
		t.Run(name, func(t *testing.T) {
			err := checkBytes(c.do(bytes.Clone(whole)))
			if !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v, want %q", err, c.says)
			}
		})
	}
}

// While the newer meta page is broken, the older one holds, as it does after a
// crash.
func TestOlderMetaPage(t *testing.T) {
	whole := made(t)
	at := newest(whole)
	for name, damage := range map[string]func([]byte){
		"checksum": func(b []byte) { b[at+3]++ },
		"version":  func(b []byte) { order.PutUint32(b[at+4:], 9); sign(b[at:]) },
		"gone":     func(b []byte) { clear(b[at : at+metaBytes]) },
	} {
		data := bytes.Clone(whole)
		damage(data)
		m, err := newestMeta(bytes.NewReader(data))
		if err != nil || m.transaction != order.Uint64(whole[at+48:])-1 {
			t.Errorf("%s: transaction %d, %v", name, m.transaction, err)
		}
		if err := checkBytes(data); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A tree that is higher than any is not followed.
func TestDepth(t *testing.T) {
	const levels = maxDepth + 2
	data := make([]byte, (levels+3)*testPage)
	for i := range levels {
		b := data[(i+2)*testPage:]
		order.PutUint64(b, uint64(i+2))
		order.PutUint16(b[8:], branchPage)
		order.PutUint16(b[10:], 1)
		order.PutUint32(b[headerBytes:], elementBytes)
		order.PutUint32(b[headerBytes+4:], 1)
		order.PutUint64(b[headerBytes+8:], uint64(i+3))
		b[headerBytes+elementBytes] = 'k'
	}
	m := data[headerBytes:]
	for at, value := range map[int]uint32{0: magic, 4: version, 8: testPage, 16: 2, 32: levels + 2, 40: levels + 3} {
		order.PutUint32(m[at:], value)
	}
	sign(m)
	if err := checkBytes(data); !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), "levels deep") {
		t.Errorf("got %v", err)
	}
}

type brokenDisk struct{ io.ReaderAt }

var errDisk = errors.New("input/output error")

func (d brokenDisk) ReadAt(b []byte, at int64) (int, error) {
	if at < 3*testPage {
		return d.ReaderAt.ReadAt(b, at)
	}
	return 0, errDisk
}

// What the disk does not give is not damage: the file must not be set aside.
func TestDiskError(t *testing.T) {
	whole := made(t)
	err := check(brokenDisk{bytes.NewReader(whole)}, int64(len(whole)))
	if !errors.Is(err, errDisk) || errors.Is(err, ErrDamaged) {
		t.Errorf("got %v", err)
	}
}

// What bbolt writes passes, whatever was done with it.
func TestCheckOfWholeFiles(t *testing.T) {
	dir := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		file, err := os.CreateTemp(dir, "")
		if err != nil {
			t.Fatal(err)
		}
		file.Close()
		defer os.Remove(file.Name())
		size := rapid.SampledFrom([]int{1024, 4096, 16384}).Draw(t, "page size")
		db, err := bbolt.Open(file.Name(), 0o600, &bbolt.Options{PageSize: size, NoSync: true})
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		buckets := rapid.SampledFrom([]string{"a", "b", "c"})
		for range rapid.IntRange(0, 12).Draw(t, "transactions") {
			err := db.Update(func(tx *bbolt.Tx) error {
				name := []byte(buckets.Draw(t, "bucket"))
				if rapid.IntRange(0, 7).Draw(t, "delete") == 0 && tx.Bucket(name) != nil {
					return tx.DeleteBucket(name)
				}
				b, err := tx.CreateBucketIfNotExists(name)
				long := rapid.IntRange(0, 3*size).Draw(t, "value")
				for range rapid.IntRange(0, 60).Draw(t, "entries") {
					key := rapid.SliceOfN(rapid.Byte(), 1, 40).Draw(t, "key")
					if key[0]%3 == 0 {
						err = errors.Join(err, b.Delete(key))
					} else {
						err = errors.Join(err, b.Put(key, make([]byte, long>>(key[0]%8))))
					}
				}
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			data, err := os.ReadFile(file.Name())
			if err != nil {
				t.Fatal(err)
			}
			if err := checkBytes(data); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// scribble damages data as the numbers say, mostly where a page begins.
func scribble(data []byte, number func(below int) int) {
	for range 1 + number(8) {
		at := number(len(data))
		if number(4) > 0 {
			at = at/testPage*testPage + number(96)
		}
		for i := range 1 + number(8) {
			if at+i < len(data) {
				data[at+i] = byte(number(256))
			}
		}
	}
}

// What passes is what bbolt can work with: its own check finds nothing, and
// everything can be read, removed and written.
func TestWhatPassesCanBeUsed(t *testing.T) {
	whole := made(t)
	random := rand.New(rand.NewPCG(5, 6))
	passed := 0
	const rounds = 600
	for range rounds {
		data := bytes.Clone(whole)
		scribble(data, random.IntN)
		if checkBytes(data) != nil {
			continue
		}
		passed++
		use(t, data)
	}
	if passed == 0 || passed == rounds {
		t.Errorf("%d of %d files passed; some should", passed, rounds)
	}
}

func use(t *testing.T, data []byte) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "used.db")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := Open(path)
	if err != nil {
		t.Fatalf("check passed, but opening says: %v", err)
	}
	err = f.View(func(tx *bbolt.Tx) error {
		for fault := range tx.Check() {
			t.Errorf("bbolt finds %v", fault)
		}
		return tx.ForEach(func(_ []byte, b *bbolt.Bucket) error {
			return b.ForEach(func(_, _ []byte) error { return nil })
		})
	})
	err = errors.Join(err, f.Update(func(tx *bbolt.Tx) error {
		var names [][]byte
		tx.ForEach(func(name []byte, _ *bbolt.Bucket) error { names = append(names, name); return nil })
		for _, name := range names {
			err = errors.Join(err, tx.DeleteBucket(name))
		}
		b, berr := tx.CreateBucket([]byte("new"))
		return errors.Join(err, berr, b.Put([]byte("key"), make([]byte, 9*testPage)))
	}), f.Close())
	if err != nil {
		t.Error(err)
	}
}

// FuzzCheck damages a whole file, and one that is nothing.
func FuzzCheck(f *testing.F) {
	whole := made(f)
	f.Add([]byte{}, []byte{1, 2, 3})
	f.Add([]byte("\xed\xda\x0c\xed"), []byte{})
	f.Add(whole[:3*testPage], []byte{9, 200, 7})
	f.Fuzz(func(t *testing.T, data, numbers []byte) {
		if err := checkBytes(data); err != nil && !errors.Is(err, ErrDamaged) {
			t.Errorf("rubbish: %v", err)
		}
		damaged, i := bytes.Clone(whole), 0
		scribble(damaged, func(below int) int {
			value := 0
			for range 3 {
				if i++; i <= len(numbers) {
					value = value<<8 + int(numbers[i-1])
				}
			}
			return value % below
		})
		if err := checkBytes(damaged); err != nil && !errors.Is(err, ErrDamaged) {
			t.Errorf("damaged: %v", err)
		}
	})
}
