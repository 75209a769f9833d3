package models

import (
	"fmt"
)

// These are the IR versions that overlapd reads. A later one may put data
// where this reader does not look.
const (
	minIRVersion = 3
	maxIRVersion = 13
)

// Parse reads a model that lies in memory. It may not refer to external data.
// The File refers to data, which must not change while it is in use.
func Parse(data []byte, l Limits) (*File, error) {
	return parse(data, l, nil)
}

func parse(data []byte, l Limits, dir *folder) (*File, error) {
	if int64(len(data)) > l.FileBytes {
		return nil, refuse(ErrLimit, "the file has %d bytes, at most %d are read", len(data), l.FileBytes)
	}
	p := &parser{data: data, limits: l, left: l, folder: dir, names: map[string]string{}}
	f := &File{data: data, folder: dir}
	if err := p.model(f); err != nil {
		return nil, err
	}
	return f, nil
}

// parser holds what is common to all parts of one file.
type parser struct {
	data   []byte
	limits Limits
	left   Limits // what the limits still allow
	folder *folder
	names  map[string]string
	calls  *calls // of the graph or function that is being read
}

// spend takes n from one of the limits in p.left.
func (p *parser) spend(left *int, limit, n int, what string) error {
	if n > *left {
		return refuse(ErrLimit, "more than %d %s", limit, what)
	}
	*left -= n
	return nil
}

func (p *parser) intern(b []byte) (string, error) {
	if s, ok := p.names[string(b)]; ok {
		return s, nil
	}
	if len(b) > p.limits.NameBytes {
		return "", refuse(ErrLimit, "a name has %d bytes, at most %d are read", len(b), p.limits.NameBytes)
	}
	if err := p.spend(&p.left.StringBytes, p.limits.StringBytes, len(b), "bytes of names"); err != nil {
		return "", err
	}
	s := string(b)
	p.names[s] = s
	return s, nil
}

// deeper returns the depth of what is nested in something at depth.
func (p *parser) deeper(depth int, what string) (int, error) {
	if depth >= p.limits.Depth {
		return 0, refuse(ErrLimit, "%s are nested more than %d deep", what, p.limits.Depth)
	}
	return depth + 1, nil
}

func (p *parser) model(f *File) error {
	if len(p.data) == 0 {
		return refuse(ErrNotONNX, "there are no bytes")
	}
	var graph []byte
	m := message{p: p, rest: p.data}
	for m.next() {
		switch m.num {
		case 1:
			f.IRVersion = m.int()
		case 2:
			f.Producer = m.name()
		case 3:
			f.ProducerVersion = m.name()
		case 4:
			f.Domain = m.name()
		case 7:
			m.once(func(raw []byte) error { graph = raw; return nil })
		case 8:
			m.each(func(raw []byte) error { return p.opset(f, raw) })
		case 14:
			m.each(func(raw []byte) error { return p.metadata(f, raw) })
		case 20:
			m.err = refuse(ErrGraph, "the model holds training information; export it for inference")
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
	if f.IRVersion < minIRVersion || f.IRVersion > maxIRVersion {
		return refuse(ErrVersion, "IR version %d is not between %d and %d; export the model anew",
			f.IRVersion, minIRVersion, maxIRVersion)
	}
	return p.mainGraph(f, graph)
}

func (p *parser) mainGraph(f *File, raw []byte) error {
	p.calls = &calls{}
	g, free, err := p.graph(raw, 0)
	if err != nil {
		return err
	}
	if len(free) > 0 {
		return undefined(&g, free[0])
	}
	outputs := make(map[string]bool, len(g.Outputs))
	for _, v := range g.Outputs {
		if outputs[v.Name] {
			return refuse(ErrGraph, "output %s is listed twice", quote(v.Name))
		}
		outputs[v.Name] = true
	}
	f.Graph = g
	return p.expand(f.Functions, p.calls)
}

func (p *parser) opset(f *File, raw []byte) error {
	if err := p.spend(&p.left.Opsets, p.limits.Opsets, 1, "operator sets"); err != nil {
		return err
	}
	o := Opset{Raw: clip(raw)}
	m := message{p: p, rest: raw}
	for m.next() {
		switch m.num {
		case 1:
			o.Domain = m.name()
		case 2:
			o.Version = m.int()
		}
	}
	f.Opsets = append(f.Opsets, o)
	return m.err
}

func (p *parser) metadata(f *File, raw []byte) error {
	if err := p.spend(&p.left.Metadata, p.limits.Metadata, 1, "metadata entries"); err != nil {
		return err
	}
	key, value, err := p.entry(raw)
	if err != nil {
		return err
	}
	if f.Metadata == nil {
		f.Metadata = map[string]string{}
	}
	f.Metadata[key] = value
	return nil
}

// entry reads a pair of strings. The value may be longer than a name.
func (p *parser) entry(raw []byte) (key, value string, err error) {
	m := message{p: p, rest: raw}
	for m.next() {
		switch m.num {
		case 1:
			key = m.name()
		case 2:
			m.each(func(b []byte) error {
				value = string(b[:min(len(b), p.left.StringBytes)])
				return p.spend(&p.left.StringBytes, p.limits.StringBytes, len(b), "bytes of names and metadata")
			})
		}
	}
	return key, value, m.err
}

// clip keeps an append to raw from writing into the file.
func clip(raw []byte) []byte { return raw[:len(raw):len(raw)] }

// place names the i-th thing of a kind, by its name if it has one.
func place(kind, name string, i int) string {
	if name == "" {
		return fmt.Sprintf("%s %d", kind, i)
	}
	return kind + " " + quote(name)
}
