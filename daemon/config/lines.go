package config

import (
	"strconv"

	"github.com/pelletier/go-toml/v2/unstable"
)

// lines says on which line of a TOML file each key stands. Keys are written
// with dots, entries of an array of tables with their number: service[1].name.
type lines map[string]int

// findLines reads a file that is known to be TOML.
func findLines(data []byte) lines {
	at := lines{}
	arrays := map[string]int{} // how many entries each array of tables has
	var p unstable.Parser
	p.Reset(data)
	prefix := ""
	for p.NextExpression() {
		node := p.Expression()
		switch node.Kind {
		case unstable.Table, unstable.ArrayTable:
			key, line := joinKey(&p, "", node.Key())
			if node.Kind == unstable.ArrayTable {
				arrays[key]++
				key += "[" + strconv.Itoa(arrays[key]-1) + "]"
			}
			at[key] = line
			prefix = key + "."
		case unstable.KeyValue:
			at.keyValue(&p, prefix, node)
		}
	}
	return at
}

// keyValue notes a key, and those of a table written inline.
func (at lines) keyValue(p *unstable.Parser, prefix string, node *unstable.Node) {
	key, line := joinKey(p, prefix, node.Key())
	at[key] = line
	at.value(p, key, node.Value())
}

func (at lines) value(p *unstable.Parser, key string, v *unstable.Node) {
	n := 0
	for it := v.Children(); len(key) < maxKeyBytes && it.Next(); {
		switch v.Kind {
		case unstable.InlineTable:
			at.keyValue(p, key+".", it.Node())
		case unstable.Array:
			at.value(p, key+"["+strconv.Itoa(n)+"]", it.Node())
			n++
		}
	}
}

// maxKeyBytes is where a key is cut off; no key that overlapd knows is so
// long.
const maxKeyBytes = 256

func joinKey(p *unstable.Parser, prefix string, parts unstable.Iterator) (key string, line int) {
	key = prefix
	for first := true; parts.Next() && len(key) < maxKeyBytes; first = false {
		if !first {
			key += "."
		}
		part := parts.Node().Data
		key += string(part[:min(len(part), maxKeyBytes)])
		line = p.Shape(parts.Node().Raw).Start.Line
	}
	return key, line
}
