package statefile

import "bytes"

// bounds are the keys that a page may have: from low, below high. A nil high
// bounds nothing.
type bounds struct {
	low, high []byte
}

// element is an entry of a branch or leaf page.
type element struct {
	flags      uint32
	child      uint64
	key, value []byte
}

// walk checks the page, and all below it.
func (p *pages) walk(id uint64, b bounds, depth int) error {
	if depth > maxDepth {
		return damaged("page %d is %d levels deep", id, depth)
	}
	at, err := p.take(id, reached)
	if err != nil {
		return err
	}
	return p.walkPage(at, b, depth)
}

func (p *pages) walkPage(at page, b bounds, depth int) error {
	elements, err := at.elements()
	if err != nil {
		return err
	}
	for i, e := range elements {
		if bytes.Compare(e.key, b.low) < 0 || b.high != nil && bytes.Compare(e.key, b.high) >= 0 || i > 0 && bytes.Compare(e.key, elements[i-1].key) <= 0 {
			return damaged("the keys of page %d are not in order", at.id)
		}
		switch {
		case at.kind == branchPage:
			within := bounds{e.key, b.high}
			if i+1 < len(elements) {
				within.high = elements[i+1].key
			}
			err = p.walk(e.child, within, depth+1)
		case e.flags&bucketEntry != 0:
			err = p.walkBucket(at.id, e.value, depth+1)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// walkBucket checks what a bucket holds: pages, or one that lies in the value.
func (p *pages) walkBucket(in uint64, value []byte, depth int) error {
	if len(value) < bucketBytes {
		return damaged("page %d has a bucket of %d bytes", in, len(value))
	}
	if root := order.Uint64(value); root != 0 {
		return p.walk(root, bounds{}, depth)
	}
	if len(value) < bucketBytes+headerBytes || depth > maxDepth {
		return damaged("page %d has a bucket of %d bytes, %d levels deep", in, len(value), depth)
	}
	inline := asPage(in, value[bucketBytes:])
	if inline.kind != leafPage {
		return damaged("page %d has a bucket of pages of kind %#x", in, inline.kind)
	}
	return p.walkPage(inline, bounds{}, depth)
}

// elements returns the entries of a branch or leaf page. Their keys and values
// follow them, in this order and without gaps.
func (at page) elements() ([]element, error) {
	next := headerBytes + at.count*elementBytes
	if at.kind != branchPage && at.kind != leafPage || at.kind == branchPage && at.count == 0 {
		return nil, damaged("page %d is of kind %#x with %d elements", at.id, at.kind, at.count)
	}
	if next > len(at.bytes) {
		return nil, damaged("page %d has no room for %d elements", at.id, at.count)
	}
	list := make([]element, at.count)
	for i := range list {
		start := headerBytes + i*elementBytes
		e, begin, keyBytes, valueBytes := at.element(start)
		end := int64(next) + keyBytes + valueBytes
		if int64(start)+begin != int64(next) || keyBytes == 0 || end > int64(len(at.bytes)) {
			return nil, damaged("element %d of page %d is not where it should be", i, at.id)
		}
		e.key, e.value = at.bytes[next:next+int(keyBytes)], at.bytes[next+int(keyBytes):end]
		list[i], next = e, int(end)
	}
	return list, nil
}

// element reads an entry, and where its key begins, from the entry on.
func (at page) element(start int) (e element, begin, keyBytes, valueBytes int64) {
	b := at.bytes[start:]
	number := func(i int) int64 { return int64(order.Uint32(b[i:])) }
	if at.kind == branchPage {
		e.child = order.Uint64(b[8:])
		return e, number(0), number(4), 0
	}
	e.flags = order.Uint32(b)
	return e, number(4), number(8), number(12)
}
