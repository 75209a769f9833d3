package tokenizer

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// inPortions returns a tokenizer that cuts texts wherever it can, from so many bytes on.
func inPortions(t *Tokenizer, bytes int) *Tokenizer {
	cut := *t
	cut.portion = bytes
	return &cut
}

// whole returns a tokenizer that never cuts a text.
func whole(t *Tokenizer) *Tokenizer { return inPortions(t, 1<<30) }

// checkPortions fails if a text has other tokens if it is cut. It returns the number of portions.
func checkPortions(t *testing.T, tok *Tokenizer, portion int, text string, pair *string, limit int) {
	t.Helper()
	want, wantErr := whole(tok).Encode(context.Background(), text, pair, limit)
	got, err := inPortions(tok, portion).Encode(context.Background(), text, pair, limit)
	// An unknown character behind the limit is not seen.
	if wantErr != nil && (err != nil || limit > 0) {
		return
	}
	if err != nil || !slices.Equal(got.IDs, want.IDs) || !slices.Equal(got.Types, want.Types) || got.Cut != want.Cut {
		t.Errorf("%.400q in portions of %d, limit %d: got\n%v, cut %v (%v), want\n%v, cut %v (%v)",
			text, portion, limit, got.IDs, got.Cut, err, want.IDs, want.Cut, wantErr)
	}
}

// portionSpecs are components that no file of testdata has, or not in this order.
var portionSpecs = []string{
	`"normalizer":{"type":"NFKC"},"pre_tokenizer":{"type":"Whitespace"}`,
	`"normalizer":{"type":"Sequence","normalizers":[{"type":"NFKD"},{"type":"StripAccents"},{"type":"Strip","strip_left":true,"strip_right":true},{"type":"NFC"}]},"pre_tokenizer":{"type":"WhitespaceSplit"}`,
	`"normalizer":{"type":"Sequence","normalizers":[{"type":"Replace","pattern":{"Regex":"o w"},"content":"w"},{"type":"Replace","pattern":{"Regex":"[a-z ]{3}"},"content":"a"},{"type":"Nmt"}]},"pre_tokenizer":{"type":"Whitespace"}`,
	`"normalizer":{"type":"Sequence","normalizers":[{"type":"Prepend","prepend":"x"},{"type":"Strip","strip_left":true,"strip_right":true}]},"pre_tokenizer":{"type":"Sequence","pretokenizers":[{"type":"WhitespaceSplit"},{"type":"Metaspace","replacement":"▁","prepend_scheme":"first"}]}`,
	`"pre_tokenizer":{"type":"Metaspace","replacement":"▁","prepend_scheme":"first","split":true}`,
	`"pre_tokenizer":{"type":"Metaspace","replacement":"▁","prepend_scheme":"always","split":true}`,
	`"pre_tokenizer":{"type":"Sequence","pretokenizers":[{"type":"Metaspace","replacement":"▁","prepend_scheme":"always"},{"type":"Digits"}]}`,
	`"normalizer":{"type":"Replace","pattern":{"String":" "},"content":"▁"}`,
	`"normalizer":{"type":"Strip","strip_left":true,"strip_right":true},"pre_tokenizer":{"type":"Split","pattern":{"String":" "},"behavior":"Isolated"}`,
	`"added_tokens":[{"content":"the","single_word":true},{"content":"ab","lstrip":true}],"pre_tokenizer":{"type":"Sequence","pretokenizers":[{"type":"Digits"},{"type":"Punctuation"},{"type":"Split","pattern":{"String":" "},"behavior":"Isolated"}]}`,
	`"pre_tokenizer":{"type":"Split","pattern":{"Regex":"\\w+"},"behavior":"Isolated","invert":true}`,
	`"pre_tokenizer":{"type":"Split","pattern":{"Regex":"\\s+(?!\\S)|\\s+"},"behavior":"Removed"}`,
	`"added_tokens":[{"content":"the","single_word":true,"normalized":true},{"content":" x","lstrip":true},{"content":"o w","rstrip":true,"normalized":true},{"content":"<|x|>","rstrip":true},{"content":"\n"}],"normalizer":{"type":"Strip","strip_left":true,"strip_right":true},"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":true}`,
}

// allSpecs returns the components that texts are cut with: those above, and others.
func allSpecs(tb testing.TB) []string {
	var sp struct {
		Normalizer struct{ Normalizers []json.RawMessage }
	}
	if err := json.Unmarshal(unzip(tb, "xlm-roberta.json.gz"), &sp); err != nil {
		tb.Fatal(err)
	}
	charsmap := fmt.Sprintf(`"normalizer":%s,"pre_tokenizer":{"type":"Whitespace"}`, sp.Normalizer.Normalizers[0])
	return slices.Concat(portionSpecs, splitSpecs(), []string{charsmap})
}

// splitSpecs returns a pre-tokenizer for each behavior with some patterns.
func splitSpecs() (all []string) {
	for _, b := range behaviors {
		for _, pattern := range []string{`{"String":" "}`, `{"String":"o w"}`, `{"Regex":"[aeiou ]"}`, `{"Regex":"[a-m]+|\\d"}`, `{"Regex":"e |a"}`} {
			for _, invert := range []bool{false, true} {
				all = append(all, fmt.Sprintf(`"pre_tokenizer":{"type":"Split","pattern":%s,"behavior":%q,"invert":%v}`, pattern, b, invert))
			}
		}
		all = append(all, fmt.Sprintf(`"pre_tokenizer":{"type":"Punctuation","behavior":%q}`, b),
			fmt.Sprintf(`"pre_tokenizer":{"type":"Sequence","pretokenizers":[{"type":"Digits"},{"type":"Split","pattern":{"String":"l"},"behavior":%q},{"type":"CharDelimiterSplit","delimiter":" "}]}`, b))
	}
	return all
}

// wordModels are models that show where pieces begin: every piece that is cut differently has other tokens.
var wordModels = []string{
	`"model":{"type":"BPE","unk_token":"c","vocab":{"a":0,"b":1,"c":2,"▁":3,"▁a":4,"▁b":5,"▁▁":6,"ab":7,"e":8,"he":9,"t":10,"the":11,"▁t":12,"▁the":13," ":14,"s":15,"a▁":16," t":17,"h":18},"merges":["▁ a","h e","▁ b","t he","▁ ▁","▁ the","a b","a ▁"]}`,
	`"model":{"type":"BPE","ignore_merges":true,"unk_token":"c","vocab":{"a":0,"b":1,"c":2,"▁":3,"▁a":4,"ab":5,"o":6,"w":7,"the":8,"t":9,"h":10,"e":11,"low":12,"l":13},"merges":["▁ a"]}`,
	`"model":{"type":"WordPiece","unk_token":"a","continuing_subword_prefix":"##","max_input_chars_per_word":100,"vocab":{` + everyChar() + `}}`,
}

// everyChar returns a vocabulary of the characters of ASCII and some words, at the beginning of a piece or not.
func everyChar() string {
	var b strings.Builder
	id := 0
	for _, prefix := range []string{"", "##"} {
		for r := rune(0x20); r < 0x7f; r++ {
			fmt.Fprintf(&b, "%q:%d,", prefix+string(r), id)
			id++
		}
		for _, word := range []string{"the", "of", "service", "é", "е", "中", "▁", "\\n", "\\t"} {
			fmt.Fprintf(&b, `"%s%s":%d,`, prefix, word, id)
			id++
		}
	}
	return strings.TrimSuffix(b.String(), ",")
}

// TestPortions compares texts that are cut wherever it is allowed with whole ones, for all tokenizers of
// testdata, for other components, and for both directions.
func TestPortions(t *testing.T) {
	count := min(*texts, 2000) / 10
	if testing.Short() {
		count /= 4
	}
	toks := map[string]*Tokenizer{}
	for _, name := range files(t) {
		toks[name] = open(t, name)
	}
	for i, spec := range allSpecs(t) {
		for _, model := range wordModels {
			tok, err := Parse([]byte("{" + spec + "," + model + "}"))
			if err != nil {
				t.Fatal(spec, ": ", err)
			}
			toks[fmt.Sprint(i, " ", spec, model[:24])] = tok
		}
	}
	for name, tok := range toks {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMaker(*seed)
			for _, direction := range []string{right, left} {
				tok := *tok
				tok.truncation = &truncation{Direction: direction, Strategy: longest, MaxLength: 1 << 20}
				for _, c := range slices.Concat(m.cases(count, 40), m.plain(count)) {
					checkPortions(t, &tok, 1+m.IntN(20), c.Text, c.Pair, c.Limit)
				}
			}
		})
	}
}

// plain makes up texts of words and punctuation of ASCII and a few other characters, which are cut often.
func (m maker) plain(count int) []testCase {
	parts := strings.Split("the|of|e\u0308|\uff76\uff9e| |  |\n|. |, |a|b|o w|low|new|ab |x|é|<|x|>| <|x|>|12|3|中文|слово |'s|▁|\t|the the|service |-|?!", "|")
	all := make([]testCase, count)
	for i := range all {
		var b strings.Builder
		for range m.IntN(60) {
			b.WriteString(parts[m.IntN(len(parts))])
		}
		all[i].Text = b.String()
		if m.IntN(2) == 0 {
			all[i].Limit = 8 + m.IntN(20)
		}
	}
	return all
}

// A long text is cut with each tokenizer, so that the part that truncation drops costs nothing.
func TestLongText(t *testing.T) {
	m := newMaker(1)
	texts := map[string]string{
		"words":    m.long(1, 1<<20),
		"Cyrillic": strings.Repeat("Быстрая лиса прыгает через ленивую собаку. ", 1<<14),
		"Chinese":  strings.Repeat("敏捷的棕色狐狸跳过了懒狗，然后跑进森林里。\n", 1<<14),
		"Hindi":    strings.Repeat("तेज़ भूरी लोमड़ी आलसी कुत्ते के ऊपर से कूदती है, अब हम घर पर हैं। ", 1<<14),
		"JSON":     strings.Repeat(`{"id":1234,"name":"the service","tags":["a","b"]},`, 1<<14),
	}
	// These have nothing but spaces between pieces, or a space before each portion.
	uncut := []string{"bytes-normalizer Chinese", "bytes-normalizer JSON", "llama2 Chinese", "mistral Chinese", "roberta Chinese"}
	for _, name := range files(t) {
		tok := open(t, name)
		for label, text := range texts {
			if slices.Contains(uncut, name+" "+label) {
				continue
			}
			for direction, portion := range map[string]int{right: tok.firstPortion(text), left: len(text) - tok.lastPortion(text)} {
				if portion > 2*portionBytes {
					t.Errorf("%s: %s is cut after %d bytes for %s", name, label, portion, direction)
				}
			}
		}
	}
}

// FuzzPortions cuts any text, with any component.
func FuzzPortions(f *testing.F) {
	for _, text := range oddities {
		f.Add("the "+text+" of "+text, uint8(3))
	}
	m := newMaker(5)
	for range 20 {
		f.Add(m.text(20), uint8(7))
	}
	var all []*Tokenizer
	for _, name := range files(f) {
		all = append(all, open(f, name))
	}
	for i, spec := range allSpecs(f) {
		tok, err := Parse([]byte("{" + spec + "," + wordModels[i%len(wordModels)] + "}"))
		if err != nil {
			f.Fatal(spec, ": ", err)
		}
		all = append(all, tok)
	}
	f.Fuzz(func(t *testing.T, text string, portion uint8) {
		for _, tok := range all {
			checkPortions(t, tok, max(int(portion), 1), text, nil, 0)
			checkPortions(t, tok, max(int(portion), 1), text, nil, 9)
		}
	})
}
