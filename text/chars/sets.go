// Package chars has the sets of code points and the normal forms that tokenizers of Hugging Face use.
//
// The reference implementation is linked with several libraries, and each has tables of another version
// of Unicode: its regular expressions are of version 16, its class of digits of 17, its normal forms of 9,
// its punctuation of 8. Go's tables lie between, so every set is one of Go's with a list of what
// differs. TestCharsets of package tokenizer compares each with the reference, code point by code point.
package chars

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode"
)

// The differences from Go's tables, as hexadecimal ranges.
const (
	newLu = "1c89 a7cb-a7cc a7da a7dc 10d50-10d65"
	newLl = "1c8a a7cd a7db 10d70-10d85"
	newLm = "10d4e 10d6f 16d40-16d42 16d6b-16d6c"
	newLo = "105c0-105f3 10d4a-10d4d 10d4f 10ec2-10ec4 11380-11389 1138b 1138e 11390-113b5 113b7 113d1" +
		" 113d3 11bc0-11be0 13460-143fa 16100-1611d 16d43-16d6a 18cff 1e5d0-1e5ed 1e5f0 2ebf0-2ee5d"
	newNd = "10d40-10d49 116d0-116e3 11bf0-11bf9 16130-16139 16d70-16d79 1ccf0-1ccf9 1e5f1-1e5fa"
	newM  = "897 10d69-10d6d 10efc 113b8-113c0 113c2 113c5 113c7-113ca 113cc-113d0 113d2 113e1-113e2" +
		" 11f5a 1611e-1612f 1e5ee-1e5ef"
	newP = "1b4e-1b4f 1b7f 10d6e 113d4-113d5 113d7-113d8 11be1 16d6d-16d6f 1e5ff"
	newS = "2427-2429 2ffc-2fff 31e4-31e5 31ef 10d8e-10d8f 1cc00-1ccef 1cd00-1ceb3 1f8b2-1f8bb 1f8c0-1f8c1" +
		" 1fa89 1fa8f 1fabe 1fac6 1fadc 1fadf 1fae9 1fbcb-1fbef"

	// Letters by their derived property alone, which Go's regular expressions cannot name.
	otherAlphabetic = "24b6-24e9 1f130-1f149 1f150-1f169 1f170-1f189"
	// What Oniguruma takes for part of a word though Unicode does not.
	latinNumbers = "b2-b3 b9 bc-be"

	// Marks that came after Unicode 9.
	lateMarks = "7fd 898-89f 8ca-8d3 9fe afa-aff b55 c04 c3c cf3 d00 d3b-d3c d81 eba ece 1715 180f 1abf-1ace" +
		" 1cf7 1df6-1dfa a82c a8ff 10d24-10d27 10eab-10eac 10efd-10eff 10f46-10f50 10f82-10f85 11070" +
		" 11073-11074 110c2 11145-11146 111c9 111ce-111cf 11241 1133b 1145e 1182c-1183a 11930-11935" +
		" 11937-11938 1193b-1193e 11940 11942-11943 119d1-119d7 119da-119e0 119e4 11a01-11a0a 11a33-11a39" +
		" 11a3b-11a3e 11a47 11a51-11a5b 11a8a-11a99 11d31-11d36 11d3a 11d3c-11d3d 11d3f-11d45 11d47" +
		" 11d8a-11d8e 11d90-11d91 11d93-11d97 11ef3-11ef6 11f00-11f01 11f03 11f34-11f3a 11f3e-11f42 13440" +
		" 13447-13455 16f4f 16f7f-16f87 16fe4 16ff0-16ff1 1cf00-1cf2d 1cf30-1cf46 1e08f 1e130-1e136 1e2ae" +
		" 1e2ec-1e2ef 1e4ec-1e4ef"
	// Nonspacing marks that came with Unicode 9, and one that was spacing later.
	marksOf9 = "8d4-8e1 1885-1886 1dfb a8c5 a9bd 1123e 11438-1143f 11442-11444 11446 11c30-11c36 11c38-11c3d" +
		" 11c3f 11c92-11ca7 11caa-11cb0 11cb2-11cb3 11cb5-11cb6 1e000-1e006 1e008-1e018 1e01b-1e021" +
		" 1e023-1e024 1e026-1e02a 1e944-1e94a"
	latePunctuation = "61d 9fd a76 c77 c84 1b7d-1b7e 2e43-2e4f 2e52-2e5d 10ead 10f55-10f59 10f86-10f89" +
		" 1144b-1144f 1145a-1145b 1145d 11660-1166c 116b9 1183b 11944-11946 119e2 11a3f-11a46 11a9a-11a9c" +
		" 11a9e-11aa2 11b00-11b09 11c41-11c45 11c70-11c71 11ef7-11ef8 11f43-11f4f 11fff 12ff1-12ff2" +
		" 16e97-16e9a 16fe2 1e95e-1e95f"
	lateFormats = "890-891 8e2 110cd 13430-1343f"
	// What decomposes now and did not in Unicode 9.
	lateDecompositions = "32ff a7f2-a7f4 ab69 10781-10785 10787-107b0 107b2-107ba 11938 1e030-1e06d 1f16c 1fbf0-1fbf9"
)

// Set is a set of code points: those of tables of Go and others, less some.
type Set struct {
	ascii  [unicode.MaxASCII + 1]bool // as most characters are of ASCII
	tables []*unicode.RangeTable
	less   *unicode.RangeTable
}

// newSet returns the code points of tables and of ranges, less those of other ranges.
func newSet(more, less string, tables ...*unicode.RangeTable) Set {
	s := Set{tables: append(tables, ranges(more)), less: ranges(less)}
	for r := range s.ascii {
		s.ascii[r] = s.listed(rune(r))
	}
	return s
}

// Has reports whether a code point is in the set.
func (s *Set) Has(r rune) bool {
	if 0 <= r && r <= unicode.MaxASCII {
		return s.ascii[r]
	}
	return s.listed(r)
}

// listed looks a code point up in the tables.
func (s *Set) listed(r rune) bool { return unicode.In(r, s.tables...) && !unicode.Is(s.less, r) }

// The sets, each as the library has it that the reference uses in that place: Oniguruma for letters and
// numbers in expressions, Rust's own library for digits, the crates regex for words, unicode_categories for
// punctuation, controls and nonspacing marks, and unicode-normalization for all marks.
var (
	Letters     = newSet(newLu+" "+newLl+" "+newLm+" "+newLo, "", unicode.L)
	Numbers     = newSet(newNd, "", unicode.N)
	Digits      = newSet(newNd+" 11de0-11de9 16ff4-16ff6", "", unicode.N)
	Word        = newSet(newLu+" "+newLl+" "+newLm+" "+newLo+" "+newNd+" "+newM+" "+otherAlphabetic+" 200c-200d", "", unicode.L, unicode.M, unicode.Nd, unicode.Nl, unicode.Pc)
	punctuation = newSet("166d 111c9 24 2b 3c-3e 5e 60 7c 7e", latePunctuation, unicode.P)
	Controls    = newSet("fffd 0", "9-a d "+lateFormats, unicode.Cc, unicode.Cf, unicode.Co)
	Marks       = newSet("1cf2-1cf3", lateMarks, unicode.M)
	Nonspacing  = newSet("1734", lateMarks+" "+marksOf9, unicode.Mn)
	undivided   = newSet(lateDecompositions, "")
)

// ranges reads a list of code points and ranges of them, in hexadecimal.
func ranges(list string) *unicode.RangeTable {
	var found []unicode.Range32
	for _, one := range strings.Fields(list) {
		var low, high uint32
		if n, _ := fmt.Sscanf(one, "%x-%x", &low, &high); n == 1 {
			high = low
		}
		found = append(found, unicode.Range32{Lo: low, Hi: high, Stride: 1})
	}
	slices.SortFunc(found, func(a, b unicode.Range32) int { return cmp.Compare(a.Lo, b.Lo) })
	table := &unicode.RangeTable{}
	for _, r := range found {
		if r.Hi <= 0xffff {
			table.R16 = append(table.R16, unicode.Range16{Lo: uint16(r.Lo), Hi: uint16(r.Hi), Stride: 1})
		} else {
			table.R32 = append(table.R32, r)
		}
		if r.Hi <= unicode.MaxLatin1 {
			table.LatinOffset++
		}
	}
	return table
}

// lower returns the lowercase of a code point, as of Unicode 17. Only U+0130 has one of two code
// points, which Lower handles.
func lower(r rune) rune {
	if r < 0x80 {
		if 'A' <= r && r <= 'Z' {
			r += 'a' - 'A'
		}
		return r
	}
	if small := unicode.ToLower(r); small != r || r < 0x1c89 {
		return small
	}
	switch {
	case r == 0xa7cb:
		return 0x264
	case r == 0xa7dc:
		return 0x19b
	case 0x10d50 <= r && r <= 0x10d65:
		return r + 0x20
	case 0x16ea0 <= r && r <= 0x16eb8:
		return r + 0x1b
	case r == 0x1c89 || r == 0xa7cc || r == 0xa7ce || r == 0xa7d2 || r == 0xa7d4 || r == 0xa7da:
		return r + 1
	}
	return r
}

// Lower returns a text in lowercase, each code point by itself.
func Lower(text string) string {
	return strings.Map(lower, strings.ReplaceAll(text, "\u0130", "i\u0307"))
}

// IsPunctuation reports whether BERT takes a code point for punctuation: symbols of ASCII are, others are not.
func IsPunctuation(r rune) bool {
	if r < unicode.MaxASCII+1 {
		return '!' <= r && r <= '/' || ':' <= r && r <= '@' || '[' <= r && r <= '`' || '{' <= r && r <= '~'
	}
	return punctuation.Has(r)
}
