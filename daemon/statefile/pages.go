package statefile

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
)

// The form of a bbolt file, version 2. Numbers are in the order of the machine.
// A page starts with its ID (8 bytes), its kind (2), how many elements it has
// (2), and how many more pages it goes over (4).
const (
	magic   = 0xED0CDAED
	version = 2

	headerBytes  = 16
	elementBytes = 16
	bucketBytes  = 16 // root page, sequence number: what stands before an inline page
	idBytes      = 8
	metaBytes    = 64 // the last eight are the checksum of the others

	branchPage = 0x01
	leafPage   = 0x02
	freePage   = 0x10

	bucketEntry = 0x01

	// manyFree in place of a count says that the count is the first element.
	manyFree = 0xFFFF

	// A page has 1 KB to 16 MB. No tree is higher than maxDepth, buckets
	// included: it would have 2^60 pages.
	minPage, maxPage = 1 << 10, 16 << 20
	maxDepth         = 64
)

// What a page is used for.
const (
	unused = iota
	reached
	free
)

var order = binary.NativeEndian

// meta is what a meta page says of the file.
type meta struct {
	pageSize             int64
	root, freelist, high uint64 // high is above the IDs of all pages
	transaction          uint64
}

// pages are those of a file while they are checked.
type pages struct {
	file io.ReaderAt
	meta
	use []byte // by ID
}

// check reads all pages of a bbolt file of this size. It returns ErrDamaged with
// what is wrong unless each is used once, and as bbolt would have written it.
// It takes the memory of the largest page with what it goes over, for each
// level of the tree, and a byte a page.
func check(file io.ReaderAt, size int64) error {
	m, err := newestMeta(file)
	switch {
	case err != nil:
		return err
	case m.pageSize < minPage || m.pageSize > maxPage || m.pageSize&(m.pageSize-1) != 0:
		return damaged("it has pages of %d bytes", m.pageSize)
	case m.high < 2 || m.high > uint64(size/m.pageSize):
		return damaged("it has %d bytes and should have %d pages of %d", size, m.high, m.pageSize)
	}
	p := &pages{file, m, make([]byte, m.high)}
	p.use[0], p.use[1] = reached, reached // of both meta pages
	if err := p.walk(m.root, bounds{}, 0); err != nil {
		return err
	}
	if err := p.readFree(); err != nil {
		return err
	}
	if id := bytes.IndexByte(p.use, unused); id >= 0 {
		return damaged("page %d is neither used nor free", id)
	}
	return nil
}

func damaged(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrDamaged, fmt.Sprintf(format, args...))
}

// newestMeta returns what the newer of the two meta pages says, which is the one
// that bbolt takes if its checksum holds, whatever it says. If the first is
// broken, the second may be wherever a page can end.
func newestMeta(file io.ReaderAt) (newest meta, err error) {
	newest, err = metaAt(file, 0)
	for at := int64(minPage); at <= maxPage; at *= 2 {
		m, merr := metaAt(file, at)
		switch {
		case merr != nil || m.pageSize != at:
		case err != nil, newest.pageSize == at && newest.transaction < m.transaction:
			newest, err = m, nil
		}
	}
	return newest, err
}

func metaAt(file io.ReaderAt, at int64) (m meta, err error) {
	page := make([]byte, headerBytes+metaBytes)
	if err := readAt(file, page, at); err != nil {
		return m, err
	}
	b := page[headerBytes:]
	sum := fnv.New64a()
	sum.Write(b[:metaBytes-8])
	switch {
	case order.Uint32(b) != magic:
		return m, damaged("it is no bbolt file")
	case order.Uint32(b[4:]) != version:
		return m, damaged("it is of version %d and not %d", order.Uint32(b[4:]), version)
	case order.Uint64(b[metaBytes-8:]) != sum.Sum64():
		return m, damaged("the checksum of the page at byte %d is wrong", at)
	}
	return meta{
		pageSize: int64(order.Uint32(b[8:])),
		root:     order.Uint64(b[16:]), freelist: order.Uint64(b[32:]), high: order.Uint64(b[40:]),
		transaction: order.Uint64(b[48:]),
	}, nil
}

// readAt fills b. The end of the file is damage, other errors are the disk's.
func readAt(file io.ReaderAt, b []byte, at int64) error {
	_, err := file.ReadAt(b, at)
	if errors.Is(err, io.EOF) {
		return damaged("it ends within a page")
	}
	return err
}

// page is the content of a page with those that it goes over.
type page struct {
	id    uint64
	kind  uint16
	count int
	bytes []byte
}

// take reads a page that nothing else may use.
func (p *pages) take(id uint64, use byte) (page, error) {
	if id < 2 || id >= p.high {
		return page{}, damaged("there is no page %d", id)
	}
	header := make([]byte, headerBytes)
	if err := readAt(p.file, header, int64(id)*p.pageSize); err != nil {
		return page{}, err
	}
	end := id + 1 + uint64(order.Uint32(header[12:]))
	switch {
	case order.Uint64(header) != id:
		return page{}, damaged("page %d says that it is page %d", id, order.Uint64(header))
	case end > p.high:
		return page{}, damaged("page %d goes over pages that do not exist", id)
	}
	for i := id; i < end; i++ {
		if p.use[i] != unused {
			return page{}, damaged("page %d is used twice", i)
		}
		p.use[i] = use
	}
	b := make([]byte, int64(end-id)*p.pageSize)
	if err := readAt(p.file, b, int64(id)*p.pageSize); err != nil {
		return page{}, err
	}
	return asPage(id, b), nil
}

func asPage(id uint64, b []byte) page {
	return page{id, order.Uint16(b[8:]), int(order.Uint16(b[10:])), b}
}

// readFree reads the list of free pages.
func (p *pages) readFree() error {
	list, err := p.take(p.freelist, reached)
	if err != nil {
		return err
	}
	if list.kind != freePage {
		return damaged("page %d is no list of free pages", list.id)
	}
	count, b := uint64(list.count), list.bytes[headerBytes:]
	if list.count == manyFree {
		count, b = order.Uint64(b), b[idBytes:]
	}
	if count > uint64(len(b)/idBytes) {
		return damaged("page %d has no room for %d free pages", list.id, count)
	}
	for i := range count {
		id := order.Uint64(b[i*idBytes:])
		if id >= p.high || p.use[id] != unused {
			return damaged("page %d is not free, or twice", id)
		}
		p.use[id] = free
	}
	return nil
}
