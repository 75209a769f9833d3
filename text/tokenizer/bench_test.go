package tokenizer

import (
	"context"
	"fmt"
	"strings"
	"testing"
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
					b.ReportAllocs()
					for b.Loop() {
						if _, err := t.Encode(context.Background(), text, nil, 1<<30); err != nil {
							b.Fatal(err)
						}
					}
				})
			}
		}
	}
}

// BenchmarkShort takes a text of 128 tokens, as most requests have.
func BenchmarkShort(b *testing.B) {
	text := strings.TrimSpace(newMaker(1).long(1, 1<<12))
	for _, name := range files(b) {
		b.Run(name, func(b *testing.B) {
			t := open(b, name)
			b.ReportAllocs()
			words := strings.Fields(text)
			n := len(words)
			for tokens := 1 << 20; tokens > 128; n-- {
				e, err := t.Encode(context.Background(), strings.Join(words[:n], " "), nil, 1<<30)
				if err != nil {
					b.Fatal(err)
				}
				tokens = len(e.IDs)
			}
			short := strings.Join(words[:n], " ")
			for b.Loop() {
				if _, err := t.Encode(context.Background(), short, nil, 512); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
