package tokenizer

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"unicode/utf8"
)

// Blocks of Unicode that made-up texts draw from: first and last code point.
var blocks = [][2]rune{
	{'a', 'z'}, {'A', 'Z'}, {'0', '9'}, {'!', '~'}, {0x80, 0xff}, {0x100, 0x24f}, {0x250, 0x2af}, {0x2b0, 0x2ff},
	{0x300, 0x36f}, {0x370, 0x3ff}, {0x400, 0x52f}, {0x530, 0x58f}, {0x590, 0x5ff}, {0x600, 0x6ff}, {0x700, 0x7ff},
	{0x800, 0x8ff}, {0x900, 0x97f}, {0x980, 0xbff}, {0xc00, 0xdff}, {0xe00, 0xe7f}, {0xe80, 0xfff}, {0x1000, 0x10ff},
	{0x1100, 0x11ff}, {0x1200, 0x139f}, {0x13a0, 0x17ff}, {0x1800, 0x1cff}, {0x1d00, 0x1dff}, {0x1e00, 0x1fff},
	{0x2000, 0x206f}, {0x2070, 0x20cf}, {0x20d0, 0x214f}, {0x2150, 0x23ff}, {0x2400, 0x27bf}, {0x2c00, 0x2fff},
	{0x3000, 0x303f}, {0x3040, 0x30ff}, {0x3100, 0x33ff}, {0x3400, 0x4dbf}, {0x4e00, 0x9fff}, {0xa000, 0xabff},
	{0xac00, 0xd7ff}, {0xe000, 0xe100}, {0xf900, 0xfaff}, {0xfb00, 0xfdff}, {0xfe00, 0xfe6f}, {0xfe70, 0xfeff},
	{0xff00, 0xffff}, {0x10000, 0x11fff}, {0x12000, 0x1bfff}, {0x1d000, 0x1d7ff}, {0x1e000, 0x1efff}, {0x1f000, 0x1faff},
	{0x20000, 0x2a6df}, {0x2a700, 0x323af}, {0xe0000, 0xe01ff}, {0xf0000, 0x10ffff}, {0, 0x1f}, {0x4e00, 0x4e80}, {0xac00, 0xac80},
}

// Parts that tokenizers treat in ways of their own.
var oddities = strings.Split("[MASK]|<mask>|<s>|</s>|<unk>|[CLS]|[UNK]|[TAG]| [TAG] |domain|Domain|domains|<|sep|>|[INST]| </s> |naïve|NAÏVE|nai\u0308ve|"+
	"don't|DON'T|we'll|I'M|they'Re|it'ſ|'S|o'clock|''|``|l'été|x's's|'ll|'|’s|it''s|1st|3.14|12345678|1,000|٣٤٥|①②|Ⅳ|½|x²|"+
	"\r\n|\n\n|\n \n|\r|\t\t|  |   |          |\u00a0|\u2003|\u3000|\u200b|\u200d|\u2028|\u0085|\u180e|\ufeff|\u2581|\u2581\u2581| \u2581 |"+
	"👩‍👩‍👧‍👦|👍🏽|🇩🇪🇫🇷|☺️|🏴󠁧󠁢󠁥󠁮󠁧󠁿|🤷🏿‍♀️|e\u0301|é|E\u0301\u0323|Å|Å|ﬁ|ﬃ|ǆ|ẞ|ß|İ|ı|Σίσυφος|ΌΣΟΣ|ａｂｃ|ＡＢＣ１２|ｶﾞｷﾞ|が|か\u3099|"+
	"한글|한글|각|각\u11a8|\u1100\u1161|क्षि|क\u094dष|நி|กำ|ก\u0e33|สวัสดี|中文字符|日本語テキスト|カタカナー|繁體|ﷺ|שָׁלוֹם|العَرَبِيَّة|\u0600123|\u0301|\u0301\u0302\u0303a|"+
	"<0x41>|<0xE2>|##ing|Ġ|Ċ|▁the|http://a.b/c?d=e&f|a_b_c|_|__init__|C++|#1|$5.00|100%|a@b.c|...|—|…|\x00|\x01|\x7f|\ufffd|\ufffe|\U0001f9ff|\U00010ffff", "|")

// words that the vocabularies were trained on.
var trained = strings.Fields("the of a service is and to in device query batch its model for with are The that what by memory on each latency predictor " +
	"scheduler operators daemon worker deadline GPU CPU measured configuration overlapd isolated requests which it not may time one does")

// maker makes up texts.
type maker struct{ *rand.Rand }

func newMaker(seed uint64) maker { return maker{rand.New(rand.NewPCG(seed, 1))} }

// part returns a word or a few characters.
func (m maker) part() string {
	switch m.IntN(10) {
	case 0, 1, 2:
		return trained[m.IntN(len(trained))]
	case 3, 4:
		return oddities[m.IntN(len(oddities))]
	case 5:
		return string(m.rune([2]rune{0, utf8.MaxRune}))
	case 6:
		return strings.Repeat(string(m.rune(blocks[m.IntN(len(blocks))])), 1+m.IntN(5))
	default:
		block := blocks[m.IntN(len(blocks))]
		var b strings.Builder
		for range 1 + m.IntN(6) {
			b.WriteRune(m.rune(block))
		}
		return b.String()
	}
}

// rune returns a code point of a block that is no surrogate.
func (m maker) rune(block [2]rune) rune {
	for {
		if r := block[0] + m.Int32N(block[1]-block[0]+1); utf8.ValidRune(r) {
			return r
		}
	}
}

// text returns a text of up to some parts, most of them short.
func (m maker) text(most int) string {
	var b strings.Builder
	for range m.IntN(1 + m.IntN(1+m.IntN(most))) {
		b.WriteString(m.part())
		switch m.IntN(8) {
		case 0:
		case 1:
			b.WriteString([]string{"  ", "\n", "\t", ".", ", ", "-", "   ", "\u00a0"}[m.IntN(8)])
		default:
			b.WriteByte(' ')
		}
	}
	if m.IntN(3) == 0 {
		return strings.TrimSpace(b.String())
	}
	return b.String()
}

// long returns a text of many bytes: of one character, of words, or of anything.
func (m maker) long(kind, bytes int) string {
	var b strings.Builder
	for b.Len() < bytes {
		switch kind % 5 {
		case 0:
			b.WriteByte('a')
		case 1:
			b.WriteString(trained[m.IntN(len(trained))])
			b.WriteByte(' ')
		case 2:
			b.WriteString(m.part())
		case 3:
			b.WriteString(" ")
		case 4:
			b.WriteString(string(m.rune(blocks[m.IntN(len(blocks))])))
		}
	}
	return b.String()
}

// a testCase is a text, or a pair, with a limit.
type testCase struct {
	Text  string  `json:"t"`
	Pair  *string `json:"p"`
	Limit int     `json:"n"`
}

// cases makes up cases: of seven, one has a pair, and one a limit.
func (m maker) cases(count, parts int) []testCase {
	all := make([]testCase, count)
	for i := range all {
		all[i].Text = m.text(parts)
		if m.IntN(7) == 0 {
			pair := m.text(parts)
			all[i].Pair = &pair
		}
		if m.IntN(7) == 0 {
			all[i].Limit = 8 + m.IntN(40)
		}
	}
	return all
}

func (c testCase) String() string {
	if c.Pair != nil {
		return fmt.Sprintf("%.300q, %.300q, limit %d", c.Text, *c.Pair, c.Limit)
	}
	return fmt.Sprintf("%.300q, limit %d", c.Text, c.Limit)
}
