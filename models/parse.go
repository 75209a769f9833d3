package models

import "fmt"

// minIRVersion is the oldest IR version that overlapd reads. There is no upper limit: the ONNX
// Runtime that loads the model rejects versions that are too new for it.
const minIRVersion = 3

// Parse reads a model from memory, which may not refer to external data. The File refers to
// data, which must not change while the File is in use.
func Parse(data []byte) (*File, error) { return parse(data, defaultLimits(), nil) }

func parse(data []byte, l limits, dir *folder) (*File, error) {
	if int64(len(data)) > l.FileBytes {
		return nil, refuse(ErrLimit, "the file has %d bytes, and the limit is %d", len(data), l.FileBytes)
	}
	p := &parser{data: data, limits: l, left: l, folder: dir, names: map[string]string{}}
	f := &File{data: data, folder: dir}
	if err := p.model(f); err != nil {
		return nil, err
	}
	return f, nil
}

// parser holds the state that is shared while one file is parsed.
type parser struct {
	data   []byte
	limits limits
	// left is the remainder of limits; spend reduces it.
	left   limits
	folder *folder
	// names interns strings, so that each distinct name is stored once.
	names map[string]string
	// calls collects the operators of the graph or function that is being read.
	calls calls
}

// spend takes n from one of the limits in p.left, or returns an error if less is left.
func (p *parser) spend(left *int, limit, n int, what string) error {
	if n > *left {
		return refuse(ErrLimit, "more than %d %s", limit, what)
	}
	*left -= n
	return nil
}

// intern returns b as a string that is shared by all occurrences.
func (p *parser) intern(b []byte) (string, error) {
	if s, ok := p.names[string(b)]; ok {
		return s, nil
	}
	if len(b) > p.limits.NameBytes {
		return "", refuse(ErrLimit, "a name has %d bytes, and the limit is %d", len(b), p.limits.NameBytes)
	}
	if err := p.spend(&p.left.StringBytes, p.limits.StringBytes, len(b), "bytes of names"); err != nil {
		return "", err
	}
	s := string(b)
	p.names[s] = s
	return s, nil
}

// deeper returns the nesting depth inside something at depth, or an error beyond the limit.
func (p *parser) deeper(depth int, what string) (int, error) {
	if depth >= p.limits.Depth {
		return 0, refuse(ErrLimit, "%s are nested more than %d deep", what, p.limits.Depth)
	}
	return depth + 1, nil
}

func (p *parser) model(f *File) error {
	if len(p.data) == 0 {
		return refuse(ErrNotONNX, "the file is empty")
	}
	var graph []byte
	m := message{p: p, rest: p.data}
	for m.next() {
		switch m.num {
		case 1:
			f.IRVersion = m.int()
		case 7:
			m.once(func(raw []byte) error { graph = raw; return nil })
		case 8:
			m.each(func(raw []byte) error { return p.opset(f, raw) })
		case 20:
			m.err = refuse(errGraph, "the model contains training information; export it for inference")
		case 25:
			m.each(func(raw []byte) error { return p.function(f, raw) })
		}
	}
	if m.err != nil {
		return m.err
	}
	if graph == nil {
		return refuse(ErrNotONNX, "it has no graph")
	}
	if f.IRVersion < minIRVersion {
		return refuse(errVersion, "IR version %d is older than %d; export the model again with a newer exporter",
			f.IRVersion, minIRVersion)
	}
	return p.mainGraph(f, graph)
}

// mainGraph reads the main graph. It comes after all other fields of the model, because the
// functions it may call can follow it in the file.
func (p *parser) mainGraph(f *File, raw []byte) error {
	p.calls = calls{}
	g, _, err := p.graph(raw, 0)
	if err != nil {
		return err
	}
	outputs := make(map[string]bool, len(g.Outputs))
	for _, v := range g.Outputs {
		if outputs[v.Name] {
			return refuse(errGraph, "output %s is listed twice", quote(v.Name))
		}
		outputs[v.Name] = true
	}
	f.Graph, f.calls = g, p.calls
	dropZipMaps(f)
	return expand(f.Functions, p.calls, p.limits.Nodes)
}

func (p *parser) opset(f *File, raw []byte) error {
	f.Opsets = append(f.Opsets, clip(raw))
	return p.spend(&p.left.Opsets, p.limits.Opsets, 1, "operator sets")
}

// clip limits the capacity of raw, so that an append to it cannot write into the file.
func clip(raw []byte) []byte { return raw[:len(raw):len(raw)] }

// place names the i-th part of a kind, by its name if it has one, for a message.
func place(kind, name string, i int) string {
	if name == "" {
		return fmt.Sprintf("%s %d", kind, i)
	}
	return kind + " " + quote(name)
}

// function is an operator that the model itself defines.
type function struct {
	Domain   string
	Name     string
	Overload string
	// Raw is the FunctionProto.
	Raw []byte

	calls calls
}

type functionKey struct{ domain, name, overload string }

// canonical maps both spellings of ONNX's own domain to one key.
func (k functionKey) canonical() functionKey {
	if k.domain == "ai.onnx" {
		k.domain = ""
	}
	return k
}

func (f *function) key() functionKey {
	return functionKey{f.Domain, f.Name, f.Overload}.canonical()
}

func (f *function) place() string { return "function " + quote(f.Name) }

// calls counts the nodes of a graph or function, at any depth, by operator. A key may be a
// function of the model or a built-in operator.
type calls map[functionKey]int

func (p *parser) function(f *File, raw []byte) error {
	if err := p.spend(&p.left.Functions, p.limits.Functions, 1, "functions"); err != nil {
		return err
	}
	fn := function{Raw: clip(raw), calls: calls{}}
	p.calls = fn.calls
	var g graph
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
			m.each(func(raw []byte) error { return p.nodeAttribute(&Node{}, raw, 0, 0) })
		case 13:
			fn.Overload = m.name()
		}
	}
	if m.err != nil {
		return within(m.err, fn.place())
	}
	if _, err := checkOrder(&g, false); err != nil {
		return within(err, fn.place())
	}
	f.Functions = append(f.Functions, fn)
	return nil
}

func (p *parser) parameter(m *message, to *[]valueInfo) {
	name := m.name()
	if m.err == nil {
		m.err = p.spend(&p.left.ValueInfos, p.limits.ValueInfos, 1, "inputs, outputs and values")
	}
	*to = append(*to, valueInfo{Name: name})
}

// expand checks that no function calls itself, directly or indirectly, and that the main graph
// stays within the limit on nodes when every call is replaced by the function's nodes. Without
// this check, a short chain of functions that each call the next one twice would expand to
// exponentially many nodes.
func expand(functions []function, main calls, maxNodes int) error {
	e := expansion{
		limit:     maxNodes,
		functions: make(map[functionKey]*function, len(functions)),
		size:      make(map[functionKey]size, len(functions)),
	}
	for i := range functions {
		f := &functions[i]
		if e.functions[f.key()] != nil {
			return within(refuse(errGraph, "it is defined twice"), f.place())
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

// maxCallDepth limits how deep functions may call each other. Libraries that inline functions
// do so recursively and would overflow their stack.
const maxCallDepth = 64

// expansion computes the expanded sizes of functions, each once.
type expansion struct {
	limit     int
	functions map[functionKey]*function
	size      map[functionKey]size
}

// size is the size of a function after expansion. A negative depth marks a function whose size
// is being computed, so that a call cycle is detected.
type size struct{ nodes, depth int }

func (e *expansion) function(f *function) (size, error) {
	s, ok := e.size[f.key()]
	switch {
	case ok && s.depth < 0:
		return size{}, within(refuse(errGraph, "it calls itself"), f.place())
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

func (e *expansion) calls(c calls) (size, error) {
	var total size
	for key, count := range c {
		each := size{nodes: 1}
		if f := e.functions[key]; f != nil {
			s, err := e.function(f)
			if err != nil {
				return size{}, err
			}
			each = size{nodes: max(s.nodes, 1), depth: s.depth}
		}
		// Dividing instead of multiplying avoids overflow.
		if each.nodes > (e.limit-total.nodes)/count {
			return size{}, refuse(ErrLimit, "more than %d nodes once all functions are expanded", e.limit)
		}
		total.nodes += each.nodes * count
		total.depth = max(total.depth, each.depth)
	}
	return total, nil
}
