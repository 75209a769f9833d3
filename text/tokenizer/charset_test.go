package tokenizer

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/overlapd/overlapd/text/chars"
)

// points are the code points that are compared: neither surrogates nor of planes where nothing is assigned.
func points() (all []rune) {
	for r := rune(1); r < 0x32400; r++ {
		if r < 0xd800 || r >= 0xe000 {
			all = append(all, r)
		}
	}
	for r := rune(0xe0000); r < 0xe0200; r++ {
		all = append(all, r)
	}
	return all
}

// TestCharsets compares what is done to each code point with hashes of what the reference does. A new
// version of Go or of the reference may bring another version of Unicode: then the ranges in package
// chars need to change.
func TestCharsets(t *testing.T) {
	const file = "testdata/charsets.json"
	if *update {
		out, err := exec.Command(os.Getenv("OVERLAPD_TEST_PYTHON"), "testdata/reference.py", "charsets").Output()
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, out, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var want map[string]string
	if err := json.Unmarshal(text, &want); err != nil {
		t.Fatal(err)
	}
	all := points()
	compare := func(name string, write func(b *strings.Builder)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var b strings.Builder
			write(&b)
			sum := sha256.Sum256([]byte(b.String()))
			if got := hex.EncodeToString(sum[:]); got != want[name] {
				t.Errorf("the reference has other code points, got hash %s, want %q", got, want[name])
			}
		})
	}
	flags := func(name string, has func(r rune) bool) {
		compare(name, func(b *strings.Builder) {
			for _, r := range all {
				if has(r) {
					b.WriteByte('1')
				} else {
					b.WriteByte('0')
				}
			}
		})
	}
	for _, name := range strings.Fields("L N M P S Lu Ll Lm Lo Nd s d w") {
		compiled := regexp.MustCompile(`^[` + chars.Class(name, true) + `]$`)
		flags(name, func(r rune) bool { return compiled.MatchString(string(r)) })
	}
	flags("punctuation", chars.IsPunctuation)
	flags("digits", chars.Digits.Has)
	flags("words", func(r rune) bool { return !chars.Word.Has(r) })
	for name, spec := range map[string]string{
		"nfc": `{"type":"NFC"}`, "nfd": `{"type":"NFD"}`, "nfkc": `{"type":"NFKC"}`, "nfkd": `{"type":"NFKD"}`,
		"nmt": `{"type":"Nmt"}`, "lowercase": `{"type":"Lowercase"}`, "strip-accents": `{"type":"StripAccents"}`,
		"bert": `{"type":"BertNormalizer","clean_text":true,"handle_chinese_chars":true,"lowercase":true}`,
	} {
		compare(name, func(b *strings.Builder) {
			change, err := component("normalizer", json.RawMessage(spec), normalizers)
			if err != nil {
				panic(err)
			}
			for i, r := range all {
				if i > 0 {
					b.WriteByte('\n')
				}
				changed, _ := normalize(string(r), change, true)
				b.WriteString(changed)
			}
		})
	}
}
