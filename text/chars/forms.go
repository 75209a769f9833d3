package chars

import (
	"slices"
	"sync"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// Form is a normal form of Unicode 9, as the reference has it. Package norm cannot be used alone: it has a
// later version, and inserts a joiner into runs of more than 30 marks. Its tables are used, and its
// quick check.
type Form struct {
	whole     norm.Form // the form itself
	decompose norm.Form // NFD or NFKD
	compose   bool
}

// The normal forms, and how package norm calls them.
var (
	NFC  = Form{norm.NFC, norm.NFD, true}
	NFD  = Form{norm.NFD, norm.NFD, false}
	NFKC = Form{norm.NFKC, norm.NFKD, true}
	NFKD = Form{norm.NFKD, norm.NFKD, false}
)

// Of returns a text in the form. Most texts are in it already, and are returned as they are.
func (f Form) Of(text string) string {
	if f.whole.IsNormalString(text) { // true of any text that is normal in Unicode 9 too
		return text
	}
	// Code points are decomposed, put in canonical order, and composed again.
	w := formWriter{form: f, out: make([]byte, 0, len(text)+len(text)/4)}
	for i := 0; i < len(text); {
		if text[i] < utf8.RuneSelf {
			w.add(rune(text[i]))
			i++
			continue
		}
		r, size := utf8.DecodeRuneInString(text[i:])
		w.divide(r, text[i:i+size])
		i += size
	}
	w.sort()
	w.finish()
	return string(w.out)
}

// Begins reports whether a text can be cut before a code point: each part then becomes what it would in the
// whole, whatever the other is.
func (f Form) Begins(r rune) bool {
	if parts := f.parts(r, string(r)); parts != nil {
		r, _ = utf8.DecodeRune(parts)
	}
	return classOf(r) == 0 && !takenIn()[r] && (r < vowelBase || r >= trailBase+trailCount)
}

// takenIn has the code points that composing may join with the one before, but for Hangul.
var takenIn = sync.OnceValue(func() map[rune]bool {
	seconds := make(map[rune]bool)
	for pair := range composites() {
		seconds[pair[1]] = true
	}
	return seconds
})

// combined is a code point with its combining class.
type combined struct {
	r     rune
	class uint8
}

// formWriter writes decomposed code points in their canonical order, composed again if the form is so.
type formWriter struct {
	form    Form
	out     []byte
	pending []combined // marks since the last starter, not yet in order

	// Of composing: the last starter, and the marks behind it that it did not take in.
	starter  rune
	started  bool
	kept     []rune
	lastKept uint8 // the class of the last of kept, 0 if there is none
}

// Hangul syllables are composed by rule: of a lead, a vowel and perhaps a trail. The other constants are
// bounds of the code points with a combining class or a decomposition.
const (
	hangulBase, hangulEnd       = 0xac00, 0xac00 + 11172
	leadBase, leadCount         = 0x1100, 19
	vowelBase, vowelCount       = 0x1161, 21
	trailBase, trailCount       = 0x11a7, 28
	divesAkuruOO                = 0x11938 // the one composite that came after Unicode 9
	firstMark, lastDecomposable = 0x300, 0x2fa1d
)

// divide adds the decomposition of a code point.
func (w *formWriter) divide(r rune, text string) {
	if hangulBase <= r && r < hangulEnd {
		s := r - hangulBase
		w.add(leadBase + s/(vowelCount*trailCount))
		w.add(vowelBase + s%(vowelCount*trailCount)/trailCount)
		if trail := s % trailCount; trail > 0 {
			w.add(trailBase + trail)
		}
		return
	}
	parts := w.form.parts(r, text)
	if parts == nil {
		w.add(r)
		return
	}
	for len(parts) > 0 {
		part, size := utf8.DecodeRune(parts)
		w.add(part)
		parts = parts[size:]
	}
}

// parts returns the decomposition of a code point other than Hangul, or nil if it has none. Package norm has
// complete ones: no part has another.
func (f Form) parts(r rune, text string) []byte {
	if undivided.Has(r) {
		return nil
	}
	return f.decompose.PropertiesString(text).Decomposition()
}

// add takes a code point that has no decomposition.
func (w *formWriter) add(r rune) {
	if class := classOf(r); class > 0 {
		w.pending = append(w.pending, combined{r, class})
		return
	}
	w.sort()
	w.write(combined{r, 0})
}

// classOf returns the combining class of a code point, which is 0 for starters.
func classOf(r rune) uint8 {
	if r < firstMark || !Marks.Has(r) {
		return 0
	}
	var buffer [utf8.UTFMax]byte
	return norm.NFD.Properties(utf8.AppendRune(buffer[:0], r)).CCC()
}

// sort writes the pending marks in the order of their classes.
func (w *formWriter) sort() {
	if len(w.pending) > 1 {
		slices.SortStableFunc(w.pending, func(a, b combined) int { return int(a.class) - int(b.class) })
	}
	for _, c := range w.pending {
		w.write(c)
	}
	w.pending = w.pending[:0]
}

// write takes a code point in its canonical order. A mark is blocked from the last starter if one of the
// same class or a higher stands between, and so is a starter behind any mark; else the two are composed if
// they have a composite. Without a starter before it, a mark stays as it is.
func (w *formWriter) write(c combined) {
	if !w.form.compose || !w.started && c.class > 0 {
		w.out = utf8.AppendRune(w.out, c.r)
		return
	}
	if w.started && (w.lastKept == 0 || w.lastKept < c.class) {
		if composite, ok := compose(w.starter, c.r); ok {
			w.starter = composite
			return
		}
	}
	if c.class > 0 {
		w.kept = append(w.kept, c.r)
		w.lastKept = c.class
		return
	}
	w.finish()
	w.starter, w.started = c.r, true
}

// finish writes the last starter and its marks.
func (w *formWriter) finish() {
	if !w.started {
		return
	}
	w.out = utf8.AppendRune(w.out, w.starter)
	for _, r := range w.kept {
		w.out = utf8.AppendRune(w.out, r)
	}
	w.kept, w.lastKept, w.started = w.kept[:0], 0, false
}

// compose returns the composite of two code points, if there is one.
func compose(a, b rune) (rune, bool) {
	if lead := a - leadBase; 0 <= lead && lead < leadCount && vowelBase <= b && b < vowelBase+vowelCount {
		return hangulBase + (lead*vowelCount+b-vowelBase)*trailCount, true
	}
	if s := a - hangulBase; 0 <= s && a < hangulEnd && s%trailCount == 0 && trailBase < b && b < trailBase+trailCount {
		return a + b - trailBase, true
	}
	composite, ok := composites()[[2]rune{a, b}]
	return composite, ok
}

// composites returns the composite of each pair that has one: the inverse of the canonical
// decompositions, but for those that composing excludes.
var composites = sync.OnceValue(func() map[[2]rune]rune {
	pairs := make(map[[2]rune]rune)
	for r := rune(utf8.RuneSelf); r <= lastDecomposable; r++ {
		if hangulBase <= r && r < hangulEnd || r == divesAkuruOO {
			continue
		}
		text := string(r)
		parts := norm.NFD.PropertiesString(text).Decomposition()
		if parts == nil || !norm.NFC.IsNormalString(text) {
			continue
		}
		// The decomposition is complete, and the last of it is the second of the pair.
		last, size := utf8.DecodeLastRune(parts)
		if first := []rune(norm.NFC.String(string(parts[:len(parts)-size]))); len(first) == 1 {
			pairs[[2]rune{first[0], last}] = r
		}
	}
	return pairs
})
