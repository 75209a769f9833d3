package executor

import (
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/segments/wire"
)

// block is a block of the memory for moves. Its zero value is none.
type block struct {
	memory *wire.InputArena
	offset int64
}

// free frees the block, which no worker may use any more.
func (b block) free() {
	if b.memory != nil {
		_ = b.memory.Free(b.offset) // cannot fail: the block was allocated
	}
}

// cargo is the batches that a worker holds, and the blocks that belong to them.
type cargo struct {
	batches map[models.BatchID]held

	// blocks may be in use by the process until it is gone.
	blocks []block
}

// held is a batch that a worker holds.
type held struct {
	queries []models.QueryID

	// block holds the values of a batch that was moved to this worker.
	block block
}

// forget forgets a batch. Its block is freed once none of its runs is in flight
// any more, because such a run may read it.
func (c *cargo) forget(id models.BatchID, sent *flights) {
	b := c.batches[id]
	delete(c.batches, id)
	for i := len(sent.list) - 1; i >= 0; i-- {
		if f := &sent.list[i]; f.span.Batch == id && f.round() != nil {
			f.block = b.block
			return
		}
	}
	b.block.free()
}

// free frees all blocks of a process that is gone.
func (c *cargo) free() {
	for _, b := range c.blocks {
		b.free()
	}
	for _, b := range c.batches {
		b.block.free()
	}
}
