package child

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// hear returns the lines and the tail of what is written in these pieces.
func hear(t *testing.T, pieces ...string) (lines []string, kept string) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	go func() {
		defer w.Close()
		for _, piece := range pieces {
			w.WriteString(piece)
		}
	}()
	var last tail
	last.listen(r, func(line string) { lines = append(lines, line) })
	return lines, last.text()
}

func TestListen(t *testing.T) {
	long := strings.Repeat("x", LineBytes)
	for _, c := range []struct {
		name   string
		pieces []string
		want   []string
	}{
		{"nothing", nil, nil},
		{"pieces of lines", []string{"a", "b\nc", "\n\r\n\nd\r\n"}, []string{"ab", "c", "d"}},
		{"no end of line", []string{"a\nb"}, []string{"a", "b"}},
		{"not UTF-8", []string{"a\xff\xfeb\n"}, []string{"a?b"}},
		{"long line", []string{long, "y\nz\n"}, []string{long, "y", "z"}},
		{"exactly a buffer", []string{long[1:] + "\n" + long[1:] + "\n"}, []string{long[1:], long[1:]}},
	} {
		lines, kept := hear(t, c.pieces...)
		if !slices.Equal(lines, c.want) {
			t.Errorf("%s: %d lines: %.60q", c.name, len(lines), lines)
		}
		if all := strings.ToValidUTF8(strings.Join(c.pieces, ""), "?"); !strings.HasSuffix(all, kept) || len(all) < TailBytes && kept != all {
			t.Errorf("%s: kept %.60q", c.name, kept)
		}
	}
}

// Stacks and registers that follow do not push out why the process ended.
func TestCrashIsKept(t *testing.T) {
	dump := strings.Repeat("runtime.gopark(0x0?, 0x0?)\n", TailBytes/10) + "gs     0x0\n"
	_, kept := hear(t, "a\nSIGFPE: floating-point exception\nPC=0x48b4d2\n", dump)
	if got := Excerpt(kept, 12); got != "SIGFPE: floating-point exception" || len(kept) > TailBytes+LineBytes+1 {
		t.Errorf("of %d bytes %q is what counts", len(kept), got)
	}
}

// ONNX Runtime paints its warnings also where nobody sees colours.
func TestColoursAreLeftOut(t *testing.T) {
	lines, kept := hear(t, "\x1b[0;93m[W:onnxruntime] a\x1b[m\n\x1b[m\nb\n")
	if !slices.Equal(lines, []string{"[W:onnxruntime] a", "b"}) || kept != "[W:onnxruntime] a\n\nb\n" {
		t.Errorf("lines %q, kept %q", lines, kept)
	}
}

func TestTailIsBounded(t *testing.T) {
	_, kept := hear(t, strings.Repeat("0123456789\n", 5000), "end")
	if len(kept) > TailBytes || !strings.HasPrefix(kept, "0123456789\n") || !strings.HasSuffix(kept, "\nend") {
		t.Errorf("%d bytes: %.20q … %q", len(kept), kept, kept[max(0, len(kept)-20):])
	}
	if _, kept := hear(t, strings.Repeat("x", 3*TailBytes)); len(kept) != TailBytes {
		t.Errorf("of one endless line %d bytes are kept", len(kept))
	}
}

func TestExcerpt(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"", ""},
		{"\n a \n\n", "a"},
		{"1\n2\n3\n4", "2 | 3 | 4"},
		{"1\npanic: why\n\ngoroutine 1\nat\nmain", "panic: why"},
		{"1\n2\n3\npanic: why", "panic: why"},
		{"SIGSEGV: segmentation violation\n2\n3\n4\nfatal error: x", "SIGSEGV: segmentation violation"},
		{"1\nSIGFPE: floating-point exception\nPC=0x48b4d2 m=0 sigcode=1\nrip    0x48b4d2\ngs     0x0\n", "SIGFPE: floating-point exception"},
		{"fatal error: unexpected signal during runtime execution\n[signal SIGSEGV: segmentation violation code=0x1]\nstack", "fatal error: unexpected signal during runtime execution | [signal SIGSEGV: segmentation violation code=0x1]"},
		{"1\n2\nterminate called\n  what(): bad_alloc\nSIGABRT: abort\nPC=0x1", "terminate called | what(): bad_alloc | SIGABRT: abort"},
	} {
		if got := Excerpt(c.text, 3); got != c.want {
			t.Errorf("%q: %q, want %q", c.text, got, c.want)
		}
	}
}
