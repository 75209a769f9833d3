package models

// Function is an operator that the model itself defines.
type Function struct {
	Domain   string
	Name     string
	Overload string
	Raw      []byte // FunctionProto

	calls *calls
}

type functionKey struct{ domain, name, overload string }

// canonical gives the two spellings of ONNX's own domain one key.
func (k functionKey) canonical() functionKey {
	if k.domain == "ai.onnx" {
		k.domain = ""
	}
	return k
}

func (f *Function) key() functionKey {
	return functionKey{f.Domain, f.Name, f.Overload}.canonical()
}

func (f *Function) place() string { return "function " + quote(f.Name) }

// calls counts the nodes of a graph or function, at any depth, by what they
// may call.
type calls struct {
	count map[functionKey]int
}

func (c *calls) add(k functionKey) {
	if c.count == nil {
		c.count = map[functionKey]int{}
	}
	c.count[k]++
}

func (p *parser) function(f *File, raw []byte) error {
	if err := p.spend(&p.left.Functions, p.limits.Functions, 1, "functions"); err != nil {
		return err
	}
	fn := Function{Raw: clip(raw), calls: &calls{}}
	p.calls = fn.calls
	var g Graph
	m := message{p: p, rest: raw}
	for m.next() {
		switch m.num {
		case 1:
			fn.Name = m.name()
		case 4:
			p.parameter(&m, &g.Inputs)
		case 5:
			p.parameter(&m, &g.Outputs)
		case 7:
			m.each(func(raw []byte) error { return p.graphNode(&g.Nodes, raw, 0) })
		case 10:
			fn.Domain = m.name()
		case 11:
			m.each(func(raw []byte) error { _, _, err := p.attribute(raw, 0); return err })
		case 13:
			fn.Overload = m.name()
		}
	}
	if m.err != nil {
		return within(m.err, fn.place())
	}
	free, err := checkOrder(&g)
	if err == nil && len(free) > 0 {
		err = undefined(&g, free[0])
	}
	if err != nil {
		return within(err, fn.place())
	}
	f.Functions = append(f.Functions, fn)
	return nil
}

func (p *parser) parameter(m *message, to *[]ValueInfo) {
	name := m.name()
	if m.err == nil {
		m.err = p.spend(&p.left.ValueInfos, p.limits.ValueInfos, 1, "inputs, outputs and values")
	}
	*to = append(*to, ValueInfo{Name: name})
}

// expand verifies that no function reaches itself and that the main graph
// stays within the limit on nodes when every call is replaced by the
// function's nodes: a few functions that each call the next twice would
// otherwise become any number of nodes.
func (p *parser) expand(functions []Function, main *calls) error {
	e := expansion{
		limit:     p.limits.Nodes,
		functions: make(map[functionKey]*Function, len(functions)),
		size:      make(map[functionKey]size, len(functions)),
	}
	for i := range functions {
		f := &functions[i]
		if e.functions[f.key()] != nil {
			return within(refuse(ErrGraph, "it is defined twice"), f.place())
		}
		e.functions[f.key()] = f
	}
	for i := range functions {
		if _, err := e.function(&functions[i]); err != nil {
			return err
		}
	}
	_, err := e.calls(main)
	return err
}

// maxCallDepth bounds how deep functions may call each other, for the sake of
// every library that replaces calls by recursion.
const maxCallDepth = 64

// expansion finds out the size of functions.
type expansion struct {
	limit     int
	functions map[functionKey]*Function
	size      map[functionKey]size
}

// size is that of a function once expanded. The depth is negative while the
// size is being found out.
type size struct{ nodes, depth int }

func (e *expansion) function(f *Function) (size, error) {
	s, ok := e.size[f.key()]
	switch {
	case ok && s.depth < 0:
		return size{}, within(refuse(ErrGraph, "it calls itself"), f.place())
	case ok:
		return s, nil
	}
	e.size[f.key()] = size{depth: -1}
	s, err := e.calls(f.calls)
	if err != nil {
		return size{}, err
	}
	if s.depth++; s.depth > maxCallDepth {
		return size{}, within(refuse(ErrLimit, "functions call each other more than %d deep", maxCallDepth), f.place())
	}
	e.size[f.key()] = s
	return s, nil
}

func (e *expansion) calls(c *calls) (size, error) {
	var total size
	for key, count := range c.count {
		each := size{nodes: 1}
		if f := e.functions[key]; f != nil {
			s, err := e.function(f)
			if err != nil {
				return size{}, err
			}
			each = size{nodes: max(s.nodes, 1), depth: s.depth}
		}
		if each.nodes > (e.limit-total.nodes)/count {
			return size{}, refuse(ErrLimit, "more than %d nodes once all functions are expanded", e.limit)
		}
		total.nodes += each.nodes * count
		total.depth = max(total.depth, each.depth)
	}
	return total, nil
}
