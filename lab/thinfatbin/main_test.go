package main

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
)

// elfFile returns an ELF file for a machine whose sections have these names and data.
func elfFile(machine uint16, names []string, data ...[]byte) []byte {
	const header, sectionHeader = 64, 64
	le := binary.LittleEndian
	table := []byte{0}
	file := make([]byte, header)
	type place struct{ name, at, size int }
	var places []place
	for i, name := range append([]string{".shstrtab"}, names...) {
		places = append(places, place{name: len(table)})
		table = append(append(table, name...), 0)
		if i > 0 {
			file = append(file, make([]byte, -len(file)&7)...)
			places[i].at, places[i].size = len(file), len(data[i-1])
			file = append(file, data[i-1]...)
		}
	}
	places[0].at, places[0].size = len(file), len(table)
	file = append(file, table...)
	file = append(file, make([]byte, -len(file)&7)...)
	copy(file, "\x7fELF\x02\x01\x01")
	le.PutUint16(file[16:], 3) // a shared library
	le.PutUint16(file[18:], machine)
	le.PutUint32(file[20:], 1)
	le.PutUint64(file[40:], uint64(len(file)))
	le.PutUint16(file[52:], header)
	le.PutUint16(file[58:], sectionHeader)
	le.PutUint16(file[60:], uint16(1+len(places)))
	le.PutUint16(file[62:], 1)
	file = append(file, make([]byte, sectionHeader)...)
	for i, p := range places {
		h := make([]byte, sectionHeader)
		le.PutUint32(h, uint32(p.name))
		le.PutUint32(h[4:], map[bool]uint32{true: 3, false: 1}[i == 0]) // names, or a program's data
		le.PutUint64(h[24:], uint64(p.at))
		le.PutUint64(h[32:], uint64(p.size))
		file = append(file, h...)
	}
	return file
}

// code returns an entry of a fat binary with compressed machine code that has these
// kernels. Where the kernels say so it is of another machine, or not compressed.
func code(arch uint32, kernels ...string) []byte {
	machine, flags := uint16(machineCUDA), uint64(0x11|flagZstd)
	if slices.Contains(kernels, "x86") {
		machine = 62
	}
	var names []string
	var bodies [][]byte
	for _, k := range kernels {
		names, bodies = append(names, ".text."+k), append(bodies, bytes.Repeat([]byte(k), 99))
	}
	raw := elfFile(machine, names, bodies...)
	w, _ := zstd.NewWriter(nil)
	packed := w.EncodeAll(raw, nil)
	switch {
	case slices.Contains(kernels, "plain"):
		packed, flags = raw, 0x11
	case slices.Contains(kernels, "lz4"):
		packed, flags = []byte{0xf0}, 0x11|flagLZ4 // literals alone: 15, as many as bytes of 255 and a last one say, themselves
		for n := len(raw) - 15; ; n -= 255 {
			if packed = append(packed, byte(min(n, 255))); n < 255 {
				break
			}
		}
		packed = append(packed, raw...)
	}
	return entryOf(kindCode, arch, flags, packed, len(raw))
}

func entryOf(kind uint16, arch uint32, flags uint64, packed []byte, size int) []byte {
	le := binary.LittleEndian
	h := make([]byte, entryHeader)
	padded := append(packed, make([]byte, -len(packed)&7)...)
	le.PutUint16(h, kind)
	le.PutUint16(h[2:], 0x101)
	le.PutUint32(h[4:], entryHeader)
	le.PutUint64(h[8:], uint64(len(padded)))
	le.PutUint32(h[16:], uint32(len(packed)))
	le.PutUint32(h[28:], arch)
	le.PutUint64(h[40:], flags)
	le.PutUint64(h[56:], uint64(size))
	return append(h, padded...)
}

func container(entries ...[]byte) []byte {
	le := binary.LittleEndian
	all := slices.Concat(entries...)
	h := make([]byte, containerHeader)
	le.PutUint32(h, containerMagic)
	le.PutUint16(h[4:], 1)
	le.PutUint16(h[6:], containerHeader)
	le.PutUint64(h[8:], uint64(len(all)))
	return append(h, all...)
}

// library returns a library with fat binaries between two other sections.
func library(containers ...[]byte) []byte {
	fat := slices.Concat(containers...)
	return elfFile(62, []string{".text", ".nv_fatbin", ".data"}, bytes.Repeat([]byte{0x90}, 100), fat, []byte("data that stays"))
}

// ptx is an entry of PTX, which is text.
func ptx(arch uint32) []byte { return entryOf(1, arch, 0x11, []byte("// PTX"), 6) }

// left returns the kernels of an architecture that a library has, and of PTX its kind.
func left(t *testing.T, data []byte, arch int) (names []string) {
	t.Helper()
	d, _ := zstd.NewReader(nil)
	defer d.Close()
	s, err := section(data)
	if err == nil {
		err = walk(s, func(e *entry) error {
			if e.arch != arch || e.blank() {
				return nil
			}
			if e.kind != kindCode {
				names = append(names, "ptx")
				return nil
			}
			k, err := e.kernels(d)
			names = append(names, k...)
			return err
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// TestThin holds a thin library to what was asked for: which code stays, of which
// architectures, and that nothing else changes.
func TestThin(t *testing.T) {
	whole := library(
		container(code(80, "conv"), code(90, "conv"), code(120, "conv")),
		make([]byte, 24), // padding between the binaries of two files
		container(code(80, "moe1", "moe2"), code(90, "moe1", "moe2", "EmptyKernel")),
		container(code(90, "EmptyKernel")),
		container(code(80, "x"), code(90, "moe3", "add", "plain"), code(90, "lz4", "moe4"), code(120, "x"), ptx(90), ptx(120)),
		container(code(120, "only")),
	)
	dir := t.TempDir()
	in, out := filepath.Join(dir, "in.so"), filepath.Join(dir, "out.so")
	if err := os.WriteFile(in, whole, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		archs, drop string
		left        map[int]string
	}{
		{"90", "", map[int]string{80: "", 90: "conv moe1 moe2 EmptyKernel EmptyKernel moe3 add plain lz4 moe4", 120: ""}},
		{"90", "^moe", map[int]string{80: "", 90: "conv EmptyKernel moe3 add plain lz4 moe4", 120: ""}},
		{"80,120", "", map[int]string{80: "conv moe1 moe2 x", 90: "", 120: "conv x only"}},
	} {
		if err := run(c.archs, c.drop, in, out); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(out)
		if err != nil {
			t.Fatal(err)
		}
		if len(got) != len(whole) || !bytes.Contains(got, []byte("data that stays")) {
			t.Errorf("%+v: %d bytes of %d", c, len(got), len(whole))
		}
		for arch, want := range c.left {
			if names := strings.Join(left(t, got, arch), " "); names != want {
				t.Errorf("-arch %s -drop %q: %d has %q, want %q", c.archs, c.drop, arch, names, want)
			}
		}
	}
	if err := run("90", "", out, filepath.Join(dir, "again.so")); err == nil || !strings.Contains(err.Error(), "no kernel for architecture 90 is left") {
		t.Errorf("of an architecture that is not there: %v", err)
	}
}

// TestRefuse sees libraries refused whose layout is not the one that is known.
func TestRefuse(t *testing.T) {
	good := container(code(90, "conv"))
	broken := func(at int, b byte) []byte {
		c := bytes.Clone(good)
		c[at] = b
		return library(c)
	}
	dir := t.TempDir()
	for says, data := range map[string][]byte{
		"no section .nv_fatbin":       elfFile(62, []string{".text"}, []byte{1}),
		"is no fat binary":            broken(0, 1),
		"ends behind the section":     broken(12, 1),
		"an entry ends behind it":     broken(containerHeader+12, 1),
		"no room for its header":      library(container(make([]byte, 8))),
		"holds less than it says":     broken(containerHeader+18, 1),
		"s2: corrupt input":           library(container(entryOf(kindCode, 90, flagLZ4, []byte("packed"), 9))),
		"it is code for EM_X86_64":    library(container(code(90, "x86"))),
		"no kernel for architecture":  library(container(code(80, "conv"))),
		"has PTX and no code":         library(container(code(90, "conv")), container(ptx(90))),
		"bad magic number":            bytes.Repeat([]byte{1}, 64),
		"magic number mismatch":       broken(containerHeader+entryHeader, 1),
		"want numbers such as 90, se": nil,
	} {
		in, archs := filepath.Join(dir, "in"), "90"
		if data == nil {
			archs = "sm_90"
		}
		if err := os.WriteFile(in, data, 0o644); err != nil {
			t.Fatal(err)
		}
		out := filepath.Join(dir, "out")
		if err := run(archs, "", in, out); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("got %v, want %q", err, says)
		}
		if _, err := os.Stat(out); err == nil {
			t.Errorf("%q: it was written all the same", says)
		}
	}
}

// TestCheck sees a result refused that changed where it must not.
func TestCheck(t *testing.T) {
	d, _ := zstd.NewReader(nil)
	defer d.Close()
	before := library(container(code(80, "a"), code(90, "a")))
	is := thinner{archs: []int{90}, d: d}
	s, err := section(before)
	if err != nil {
		t.Fatal(err)
	}
	header := len(before) - cap(s) + containerHeader
	for _, at := range []int{len(before) - 1, header + 40, header + entryHeader + 20} { // of a section header, an entry's header, and code
		after := bytes.Clone(before)
		after[at] ^= 0x40
		if _, err := is.check(before, after); err == nil {
			t.Errorf("byte %d changed and nobody saw it", at)
		}
	}
	if c, err := is.check(before, before); err != nil || c[80].kernels != 1 {
		t.Errorf("the unchanged file is %+v, %v, want one kernel of 8.0", c, err)
	}
}
