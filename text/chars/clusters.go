package chars

import "unicode"

// ClustersApart reports whether a border of grapheme clusters is between two characters, whatever else the
// text has. It does not know all borders: only those between white space and other characters of ASCII,
// punctuation of East Asia, and letters of scripts that hardly join them.
func ClustersApart(before, after rune) bool {
	return single(before) && single(after) && (before != '\r' || after != '\n')
}

// single reports whether a character is a cluster unless one that is not single is next to it.
func single(r rune) bool {
	switch {
	case r < 0x80:
		return true
	case 0x3001 <= r && r <= 0x3003, 0x3008 <= r && r <= 0x3011, 0xff01 <= r && r <= 0xff60:
		return true
	// The letters that join others are jamo, prefixes in Indic scripts from Malayalam on, and vowels.
	case r < 0xd00, 0xe01 <= r && r <= 0xe30, 0x1e00 <= r && r < 0x2000, 0x3041 <= r && r < 0xa000, 0xac00 <= r && r < 0xd7a4:
		return unicode.Is(unicode.L, r)
	}
	return false
}
