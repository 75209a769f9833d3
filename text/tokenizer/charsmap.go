package tokenizer

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/clipperhouse/uax29/v2/graphemes"
)

// charsmap is SentencePiece's compiled table of replacements: a double array that finds prefixes of a text,
// and the texts that replace them, each ended by a zero byte.
type charsmap struct {
	units  []uint32
	texts  string
	ascii  [utf8.RuneSelf]*string // what replaces a character of ASCII that stands by itself
	growth int                    // by how many times what replaces a cluster may be longer
}

// errNoCharsmap is the error of a table that is cut short or not in UTF-8.
var errNoCharsmap = errors.New("precompiled_charsmap is not one of SentencePiece")

// maxReplacement is the limit in bytes on what replaces a cluster; SentencePiece's tables have up to 33.
const maxReplacement = 64

// maxReplaced is the length in bytes up to which a grapheme cluster is replaced as a whole.
const maxReplaced = 5

// newCharsmap reads a table: the size of the array in bytes, the array in little-endian, and the texts.
func newCharsmap(data []byte) (*charsmap, error) {
	const unitSize = 4
	if len(data) < unitSize {
		return nil, errNoCharsmap
	}
	size, data := binary.LittleEndian.Uint32(data), data[unitSize:]
	if size < unitSize || uint64(size) > uint64(len(data)) || !utf8.Valid(data[size/unitSize*unitSize:]) {
		return nil, errNoCharsmap
	}
	c := &charsmap{units: make([]uint32, size/unitSize)}
	for i := range c.units {
		c.units[i] = binary.LittleEndian.Uint32(data[i*unitSize:])
	}
	c.texts = string(data[len(c.units)*unitSize:])
	c.growth = 1 // what is not of ASCII has two bytes at least
	for text := range strings.SplitSeq(c.texts, "\x00") {
		if len(text) > maxReplacement {
			return nil, fmt.Errorf("precompiled_charsmap has a replacement of %d bytes; the limit is %d", len(text), maxReplacement)
		}
		c.growth = max(c.growth, (len(text)+1)/2)
	}
	for b := range c.ascii {
		if text, ok := c.find(string(rune(b))); ok {
			c.ascii[b] = &text
			c.growth = max(c.growth, len(text))
		}
	}
	return c, nil
}

// offset returns how far the children of a unit are, as darts-clone packs it.
func offset(unit uint32) uint32 { return unit >> 10 << (unit & (1 << 9) >> 6) }

// find returns what replaces the shortest prefix of a text that the table has.
func (c *charsmap) find(text string) (string, bool) {
	const (
		leaf      = 1 << 8
		labelMask = 1<<31 | 0xff
		valueMask = 1<<31 - 1
	)
	// Each byte leads to a unit, whose label must be that byte. A unit with a leaf has a value among its
	// children, at the label 0. Offsets are not trusted: a damaged table finds nothing.
	node := offset(c.units[0])
	for i := 0; i < len(text) && text[i] != 0; i++ {
		node ^= uint32(text[i])
		if uint64(node) >= uint64(len(c.units)) {
			return "", false
		}
		unit := c.units[node]
		if unit&labelMask != uint32(text[i]) {
			return "", false
		}
		node ^= offset(unit)
		if unit&leaf == 0 {
			continue
		}
		if uint64(node) >= uint64(len(c.units)) {
			return "", false
		}
		at := int(c.units[node] & valueMask)
		if at > len(c.texts) || at < len(c.texts) && !utf8.RuneStart(c.texts[at]) {
			return "", false
		}
		replacement, _, _ := strings.Cut(c.texts[at:], "\x00")
		return replacement, true
	}
	return "", false
}

// of replaces what the table has. A short grapheme cluster is looked up as a whole, and then is
// replaced as a whole even if only its beginning is in the table, as the reference does.
func (c *charsmap) of(text string) string {
	out := make([]byte, 0, len(text)+len(text)/8)
	for i := 0; i < len(text); {
		// Nearly all characters of ASCII are clusters by themselves, as the next one is of ASCII as well.
		if single := i+1 == len(text) || text[i+1] < utf8.RuneSelf && text[i] != '\r'; single && text[i] < utf8.RuneSelf {
			if replacement := c.ascii[text[i]]; replacement != nil {
				out = append(out, *replacement...)
			} else {
				out = append(out, text[i])
			}
			i++
			continue
		}
		// Up to the next place that is always between two clusters: between two characters of ASCII,
		// but for CR and LF.
		end := i + 1
		for end < len(text) && (text[end-1]|text[end] >= utf8.RuneSelf || text[end-1] == '\r' && text[end] == '\n') {
			end++
		}
		clusters := graphemes.FromString(text[i:end])
		for clusters.Next() {
			out = c.appendCluster(out, clusters.Value())
		}
		i = end
	}
	return string(out)
}

// appendCluster appends what replaces a grapheme cluster, or else what replaces each of its characters.
func (c *charsmap) appendCluster(out []byte, cluster string) []byte {
	if len(cluster) <= maxReplaced {
		if replacement, ok := c.find(cluster); ok {
			return append(out, replacement...)
		}
	}
	for _, r := range cluster {
		var buffer [utf8.UTFMax]byte
		one := utf8.AppendRune(buffer[:0], r)
		if replacement, ok := c.find(string(one)); ok {
			out = append(out, replacement...)
		} else {
			out = append(out, one...)
		}
	}
	return out
}
