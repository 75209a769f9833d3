package tokenizer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// top returns the highest ID that a tokenizer gives to a part of a text.
func (t *Tokenizer) top() int64 {
	top := t.model.words().top
	for id := range t.added.byID {
		top = max(top, id)
	}
	all := int64(top)
	for _, p := range slices.Concat(t.template.single, t.template.pair) {
		for _, id := range p.ids {
			all = max(all, id)
		}
	}
	return all
}

// checkEncoding fails for IDs outside of the vocabulary, and for more than the limit.
func checkEncoding(t *testing.T, tok *Tokenizer, text string, limit int) {
	t.Helper()
	e, err := tok.Encode(context.Background(), text, nil, limit)
	if err != nil {
		return
	}
	if limit > 0 && len(e.IDs) > limit {
		t.Errorf("%q has %d tokens, the limit is %d", text, len(e.IDs), limit)
	}
	if len(e.Types) != len(e.IDs) {
		t.Errorf("%q has %d tokens and %d segments", text, len(e.IDs), len(e.Types))
	}
	for _, id := range e.IDs {
		if id < 0 || id > tok.top() {
			t.Errorf("%q has the ID %d, the highest is %d", text, id, tok.top())
		}
	}
}

// vocabulary of the files that tests write.
const someModel = `"model":{"type":"WordPiece","unk_token":"[UNK]","continuing_subword_prefix":"##","max_input_chars_per_word":100,"vocab":{"[UNK]":0,"a":1,"##b":2,"<pad>":3}}`

func TestParseRefuses(t *testing.T) {
	for name, c := range map[string]struct{ file, want string }{
		"no JSON":           {`{`, "not a tokenizer.json"},
		"no model":          {`{"normalizer":null}`, "it has no model"},
		"another model":     {`{"model":{"type":"Neural"}}`, `model of type "Neural" is not supported; supported are BPE, Unigram, WordLevel, WordPiece`},
		"normalizer":        {`{` + someModel + `,"normalizer":{"type":"Rot13"}}`, `normalizer of type "Rot13" is not supported; supported are BertNormalizer, ByteLevel`},
		"inner normalizer":  {`{` + someModel + `,"normalizer":{"type":"Sequence","normalizers":[{"type":"Rot13"}]}}`, `type "Rot13"`},
		"pre-tokenizer":     {`{` + someModel + `,"pre_tokenizer":{"type":"UnicodeScripts"}}`, `pre_tokenizer of type "UnicodeScripts" is not supported`},
		"post-processor":    {`{` + someModel + `,"post_processor":{"type":"Other"}}`, `post_processor of type "Other"`},
		"look-behind":       {`{` + someModel + `,"pre_tokenizer":{"type":"Split","behavior":"Isolated","pattern":{"Regex":"(?<=a)b"}}}`, "look-around"},
		"possessive":        {`{` + someModel + `,"pre_tokenizer":{"type":"Split","behavior":"Isolated","pattern":{"Regex":"a++"}}}`, "++ is not supported"},
		"flag":              {`{` + someModel + `,"pre_tokenizer":{"type":"Split","behavior":"Isolated","pattern":{"Regex":"a(?i)b|c"}}}`, "(?i) is supported only at the start"},
		"optional count":    {`{` + someModel + `,"pre_tokenizer":{"type":"Split","behavior":"Isolated","pattern":{"Regex":"a{2}?"}}}`, "{2}? is not supported"},
		"empty match":       {`{` + someModel + `,"pre_tokenizer":{"type":"Split","behavior":"Isolated","pattern":{"Regex":"a*"}}}`, "matches the empty text"},
		"behavior":          {`{` + someModel + `,"pre_tokenizer":{"type":"Split","behavior":"Gone","pattern":{"String":"a"}}}`, `behavior is "Gone"`},
		"charsmap":          {`{` + someModel + `,"normalizer":{"type":"Precompiled","precompiled_charsmap":"AAAA"}}`, "not one of SentencePiece"},
		"growing":           {`{` + someModel + `,"normalizer":{"type":"Sequence","normalizers":[` + strings.Repeat(`{"type":"Replace","pattern":{"String":"a"},"content":"aaaaaaaaa"},`, 9) + `{"type":"NFC"}]}}`, "128 times as long"},
		"deep":              {`{` + someModel + `,"normalizer":` + strings.Repeat(`{"type":"Sequence","normalizers":[`, 50) + strings.Repeat(`]}`, 50) + `}`, "64 brackets"},
		"dropout":           {`{"model":{"type":"BPE","dropout":0.1,"vocab":{"a":0},"merges":[]}}`, "dropout is 0.1"},
		"merge":             {`{"model":{"type":"BPE","vocab":{"a":0},"merges":["a b"]}}`, "not in the vocabulary"},
		"unk_id":            {`{"model":{"type":"Unigram","unk_id":7,"vocab":[["a",-1]]}}`, "unk_id is 7, the vocabulary has 1 tokens"},
		"score":             {`{"model":{"type":"Unigram","vocab":[["a"]]}}`, "not a token and its score"},
		"truncation":        {`{` + someModel + `,"truncation":{"max_length":5,"strategy":"Random"}}`, `strategy is "Random"`},
		"high ID":           {`{"model":{"type":"WordLevel","vocab":{"a":4294967295}}}`, "the highest supported"},
		"template":          {`{` + someModel + `,"post_processor":{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"x","type_id":0}}],"pair":[],"special_tokens":{}}}`, `special_tokens lacks "x"`},
		"second of one":     {`{` + someModel + `,"post_processor":{"type":"TemplateProcessing","single":[{"Sequence":{"id":"B","type_id":0}}],"pair":[],"special_tokens":{}}}`, "has the second"},
		"ByteLevel, twice":  {`{` + someModel + `,"pre_tokenizer":{"type":"Sequence","pretokenizers":[{"type":"ByteLevel"},{"type":"ByteLevel"}]}}`, "a second ByteLevel"},
		"several templates": {`{` + someModel + `,"post_processor":{"type":"Sequence","processors":[{"type":"BertProcessing","sep":["a",1],"cls":["a",1]},{"type":"BertProcessing","sep":["a",1],"cls":["a",1]}]}}`, "several processors add tokens"},
	} {
		if _, err := Parse([]byte(c.file)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: the error is %v, want one with %q", name, err, c.want)
		}
	}
}

func TestRead(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tokenizer.json")
	if err := os.WriteFile(file, []byte(`{`+someModel+`}`), 0o600); err != nil {
		t.Fatal(err)
	}
	tok, err := Read(file)
	if err != nil {
		t.Fatal(err)
	}
	if id, typ := tok.Pad(); id != 3 || typ != 0 {
		t.Errorf("pads with %d of segment %d, want 3 of 0", id, typ)
	}
	if _, err := Read(file + "x"); err == nil {
		t.Error("reads a file that does not exist")
	}
}

func TestUnknown(t *testing.T) {
	tok, err := Parse([]byte(`{"model":{"type":"Unigram","vocab":[["a",-1]]}}`))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tok.Encode(context.Background(), "ab", nil, 0); !errors.Is(err, ErrUnknown) {
		t.Errorf("the error is %v, want %v", err, ErrUnknown)
	}
}

// TestScores reads numbers that the reference does not read as the nearest.
func TestScores(t *testing.T) {
	for text, want := range map[string]uint64{
		"-9.343525423345529":            0xc022afe290753a29,
		"-11.126805305480957":           0xc02640ec9fffffff,
		"-550457264918955352815.5":      0xc43dd7210dff076c,
		"-20.0567059771202779142099190": 0xc0340e84486d3826,
		"-1.4339504482183481e-05":       0xbeee12767d454735,
		"0e-99999999999999999999":       0,
		"1e-99999999999999999999":       0,
	} {
		if got, err := parseScore(text); err != nil || math.Float64bits(got) != want {
			t.Errorf("%s is %x, %v, want %x", text, math.Float64bits(got), err, want)
		}
	}
}

func TestLimit(t *testing.T) {
	tok := open(t, "bert-cased") // with a limit of 24 of its own
	text := strings.Repeat("word ", 100)
	for limit, want := range map[int]int{0: 24, 5: 5, 200: 200} {
		e, err := tok.Encode(context.Background(), text, nil, limit)
		if err != nil || len(e.IDs) != want || !e.Cut {
			t.Errorf("limit %d: %d tokens, cut is %v, error %v, want %d", limit, len(e.IDs), e.Cut, err, want)
		}
	}
	if e, err := tok.Encode(context.Background(), "a", nil, 5); err != nil || e.Cut {
		t.Errorf("a short text was cut: %v %v", e, err)
	}
	if _, err := tok.Encode(context.Background(), "a", nil, 1); err == nil {
		t.Error("two special tokens fit in a limit of 1")
	}
}

// TestInvalidText takes bytes that are not UTF-8 for U+FFFD.
func TestInvalidText(t *testing.T) {
	for _, name := range files(t) {
		tok := open(t, name)
		got, err := tok.Encode(context.Background(), "a\xff\xc3b", nil, 0)
		want, err2 := tok.Encode(context.Background(), "a\ufffd\ufffdb", nil, 0)
		if err != nil || err2 != nil || !slices.Equal(got.IDs, want.IDs) {
			t.Errorf("%s: %v, %v, want %v, %v", name, got.IDs, err, want.IDs, err2)
		}
	}
}

func TestCanceled(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for _, name := range files(t) {
		if _, err := open(t, name).Encode(ctx, "a text", nil, 0); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: the error is %v, want %v", name, err, context.Canceled)
		}
	}
}

// TestConcurrent has several goroutines encode different texts at once.
func TestConcurrent(t *testing.T) {
	for _, name := range files(t) {
		tok := open(t, name)
		var all sync.WaitGroup
		for seed := range uint64(4) {
			all.Go(func() {
				m := newMaker(seed)
				for range 20 {
					text := m.text(30)
					first, err := tok.Encode(context.Background(), text, nil, 0)
					second, err2 := tok.Encode(context.Background(), text, nil, 0)
					if err != nil || err2 != nil || !slices.Equal(first.IDs, second.IDs) {
						t.Errorf("%s: %q: %v, %v and %v, %v", name, text, first.IDs, err, second.IDs, err2)
					}
				}
			})
		}
		all.Wait()
	}
}

// cpu returns the processor time that a function takes, whatever else the machine does.
func cpu(tb testing.TB, run func()) time.Duration {
	tb.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	// Getrusage would count in ticks of some milliseconds.
	spent := func() time.Duration {
		var t unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
			tb.Fatal(err)
		}
		return time.Duration(t.Nano())
	}
	start := spent()
	run()
	return spent() - start
}

// TestTime fails if, in each of several attempts, a text of 32 times the length takes much more than 32
// times as long. Quadratic time would be four times the limit.
func TestTime(t *testing.T) {
	if testing.Short() {
		t.Skip("measures time")
	}
	const short, times, most, attempts = 1 << 12, 32, 8, 5
	for _, name := range files(t) {
		tok := open(t, name)
		for kind := range 5 {
			measure := func(size int) time.Duration {
				text := newMaker(1).long(kind, size)
				return cpu(t, func() {
					if _, err := tok.Encode(context.Background(), text, nil, 1<<30); err != nil {
						t.Error(err)
					}
				})
			}
			measure(short) // the first fills caches
			for attempt := 1; ; attempt++ {
				a, b := measure(short), measure(short*times)
				if b <= a*times*most {
					break
				}
				if attempt == attempts {
					t.Errorf("%s: %d kB of kind %d take %v, %d times as many %v", name, short>>10, kind, a, times, b)
					break
				}
			}
		}
	}
}

// TestLargeVocabulary reads a vocabulary of a quarter of a million words.
func TestLargeVocabulary(t *testing.T) {
	if testing.Short() {
		t.Skip("reads files of some megabytes")
	}
	tok, err := Parse(largeFile(250_000))
	if err != nil {
		t.Fatal(err)
	}
	if e, err := tok.Encode(context.Background(), "w249999w7", nil, 0); err != nil || len(e.IDs) != 2 {
		t.Errorf("got %v, %v, want two tokens", e.IDs, err)
	}
}

// largeFile returns a file with a Unigram model of so many words.
func largeFile(words int) []byte {
	vocab := make([][2]any, words)
	for i := range vocab {
		vocab[i] = [2]any{fmt.Sprint("w", i), -float64(i%1000) / 100}
	}
	text, err := json.Marshal(map[string]any{"model": map[string]any{"type": "Unigram", "unk_id": 0, "vocab": vocab}})
	if err != nil {
		panic(err)
	}
	return text
}

func BenchmarkParse(b *testing.B) {
	text := largeFile(250_000)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Parse(text); err != nil {
			b.Fatal(err)
		}
	}
}

// FuzzParse reads any file, and encodes texts with those that are valid.
func FuzzParse(f *testing.F) {
	for _, name := range files(f) {
		f.Add(string(small(f, name)))
	}
	f.Add(`{` + someModel + `}`)
	f.Fuzz(func(t *testing.T, file string) {
		tok, err := Parse([]byte(file))
		if err != nil {
			return
		}
		for _, text := range []string{"", "ab a", "don't １２ é\r\n  naïve \u00a0", strings.Repeat("a", 300)} {
			checkEncoding(t, tok, text, 0)
			checkEncoding(t, tok, text, 7)
		}
	})
}

// small returns a file with all components of a tokenizer and few words, as a seed.
func small(tb testing.TB, name string) []byte {
	var file map[string]json.RawMessage
	if err := json.Unmarshal(unzip(tb, name+".json.gz"), &file); err != nil {
		tb.Fatal(err)
	}
	var model map[string]any
	if err := json.Unmarshal(file["model"], &model); err != nil {
		tb.Fatal(err)
	}
	switch vocab := model["vocab"].(type) {
	case []any:
		model["vocab"] = vocab[:20]
	default:
		model["vocab"] = map[string]int{"[UNK]": 0, "<unk>": 1, "a": 2, "b": 3, "ab": 4, "##b": 5, "Ġ": 6}
		if model["merges"] != nil {
			model["merges"] = []string{"a b"}
		}
	}
	var err error
	if file["model"], err = json.Marshal(model); err != nil {
		tb.Fatal(err)
	}
	text, err := json.Marshal(file)
	if err != nil {
		tb.Fatal(err)
	}
	return text
}

// FuzzEncode encodes any text with each tokenizer, and any pair.
func FuzzEncode(f *testing.F) {
	for _, text := range oddities {
		f.Add(text, "")
	}
	m := newMaker(3)
	for range 20 {
		f.Add(m.text(20), m.text(5))
	}
	var all []*Tokenizer
	for _, name := range files(f) {
		all = append(all, open(f, name))
	}
	f.Fuzz(func(t *testing.T, text, pair string) {
		for _, tok := range all {
			spent := cpu(t, func() {
				checkEncoding(t, tok, text, 0)
				checkEncoding(t, tok, text, 12)
				_, _ = tok.Encode(context.Background(), text, &pair, 16) // there may be no room
			})
			if n := len(text) + len(pair); spent > time.Second+time.Duration(n)*100*time.Microsecond {
				t.Errorf("%d bytes take %v", n, spent)
			}
		}
	})
}
