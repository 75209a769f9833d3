package tokenizer

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// BenchmarkEncode takes texts of a kilobyte to a megabyte: the time for a byte must not grow.
func BenchmarkEncode(b *testing.B) {
	kinds := []string{"one-character", "words", "anything", "spaces", "random"}
	for _, name := range files(b) {
		t := open(b, name)
		for kind, label := range kinds {
			for size := 1 << 10; size <= 1<<20; size <<= 5 {
				text := newMaker(1).long(kind, size)
				b.Run(fmt.Sprint(name, "/", label, "/", size>>10, "kB"), func(b *testing.B) {
					b.SetBytes(int64(len(text)))
					encode(b, t, text, maxTokens)
				})
			}
		}
	}
}

// BenchmarkShort takes a text of 128 tokens, as most requests have.
func BenchmarkShort(b *testing.B) {
	text := newMaker(1).long(1, 1<<12)
	for _, name := range files(b) {
		b.Run(name, func(b *testing.B) {
			t := open(b, name)
			words := strings.Fields(text)
			n := len(words)
			for tokens := maxTokens; tokens > 128; n-- {
				e, err := t.Encode(context.Background(), strings.Join(words[:n], " "), nil, maxTokens)
				if err != nil {
					b.Fatal(err)
				}
				tokens = len(e.IDs)
			}
			encode(b, t, strings.Join(words[:n], " "), 512)
		})
	}
}

// BenchmarkTruncated takes the first 512 tokens of a megabyte.
func BenchmarkTruncated(b *testing.B) {
	text := newMaker(1).long(1, 1<<20)
	for _, name := range files(b) {
		b.Run(name, func(b *testing.B) { encode(b, open(b, name), text, 512) })
	}
}

// encode measures encoding a text, also in processor time, which other programs do not lengthen.
func encode(b *testing.B, t *Tokenizer, text string, limit int) {
	b.ReportAllocs()
	before := processSeconds(b)
	for b.Loop() {
		if _, err := t.Encode(context.Background(), text, nil, limit); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric((processSeconds(b)-before)/float64(b.N)*1e6, "cpu-µs/op")
}

// processSeconds returns the processor time of this process.
func processSeconds(b *testing.B) float64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &t); err != nil {
		b.Fatal(err)
	}
	return float64(t.Nano()) / 1e9
}
