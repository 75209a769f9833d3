package overlap

// pool keeps the records of answered queries and ended batches for use by
// later ones.
type pool struct {
	queries []*query
	batches []*batch
}

// poolChunk is how many records are made at once.
const poolChunk = 64

func (p *pool) query() *query {
	if len(p.queries) == 0 {
		chunk := make([]query, poolChunk)
		for i := range chunk {
			p.queries = append(p.queries, &chunk[i])
		}
	}
	last := len(p.queries) - 1
	q := p.queries[last]
	p.queries = p.queries[:last]
	*q = query{queuePos: -1, expiryPos: -1}
	return q
}

func (p *pool) batch(sv *service) *batch {
	if len(p.batches) == 0 {
		p.batches = append(p.batches, new(batch))
	}
	last := len(p.batches) - 1
	b := p.batches[last]
	p.batches = p.batches[:last]
	*b = batch{service: sv, members: b.members[:0], pausedPos: -1, expiryPos: -1}
	return b
}

func (p *pool) putQuery(q *query) { p.queries = append(p.queries, q) }
func (p *pool) putBatch(b *batch) { p.batches = append(p.batches, b) }
