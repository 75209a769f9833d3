// Command thinfatbin copies a shared library that carries kernels for several
// architectures of GPUs, and blanks those that are not needed:
//
//	thinfatbin -arch 90 [-drop REGEXP] IN OUT
//
// A compiler of CUDA puts the machine code of all architectures one after another into
// the section .nv_fatbin, and the driver takes from there what fits the GPU at hand.
// What is overwritten with zeros here keeps its header and its place, so that every
// address in the library stays right. The file is as large as before, and packs to a
// fraction of it. Code of an architecture that stays is blanked only where every kernel
// in it has a name that -drop matches. The driver loads code when one of its kernels is
// first called (CUDA_MODULE_LOADING is LAZY unless somebody changes it), so a blanked
// kernel is an error of its call and not of the start.
//
// Before anything is written, the result is held against the original, see check.
package main

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"
)

// The layout of a fat binary, which NVIDIA does not document: containers begin at
// multiples of 8 bytes with a magic number, and hold entries, each a header and code.
// All numbers are little-endian.
const (
	containerMagic  = 0xBA55ED50
	containerHeader = 16 // magic, version (2 bytes), bytes of this header (2), bytes of all entries (8)
	entryHeader     = 64 // the part whose meaning is known; the header says how long it is
	alignment       = 8

	kindCode = 2 // machine code, an ELF file; 1 is PTX, which the driver compiles

	flagLZ4  = 0x2000
	flagZstd = 0x8000

	machineCUDA = elf.Machine(190)

	// attributes is a kernel that CUB puts into every file, to ask what the device is. It
	// computes nothing, so it decides nothing.
	attributes = "EmptyKernel"

	elfVersion = 20 // where an ELF file has the lowest byte of its version

	// maxCode bounds what one entry may unpack to.
	maxCode = 1 << 30
)

// entry is the code of one architecture in a container.
type entry struct {
	kind uint16

	// arch is the compute capability without its point: 90 is 9.0.
	arch  int
	flags uint64

	// packed is the number of bytes of code where it is compressed. Padding follows.
	packed int

	// The container begins at container in the section, and the code at at. The code has its
	// padding, and is a part of the section, so that writing to it changes the library.
	container int
	at        int
	code      []byte
}

// blank reports whether nothing is left of the code.
func (e *entry) blank() bool { return len(bytes.Trim(e.code, "\x00")) == 0 }

// kernels returns the names of the kernels in machine code.
func (e *entry) kernels(d *zstd.Decoder) (names []string, err error) {
	code := e.code
	switch {
	case e.flags&flagZstd != 0:
		code, err = d.DecodeAll(code[:e.packed], nil)
	case e.flags&flagLZ4 != 0:
		code, err = unpackLZ4(code[:e.packed])
	default:
		code = bytes.Clone(code)
	}
	if err != nil {
		return nil, err
	}
	if len(code) > elfVersion {
		code[elfVersion] = byte(elf.EV_CURRENT) // compilers before CUDA 13 put a version of their own here
	}
	f, err := elf.NewFile(bytes.NewReader(code))
	if err != nil {
		return nil, err
	}
	if f.Machine != machineCUDA {
		return nil, fmt.Errorf("it is code for %v", f.Machine)
	}
	for _, s := range f.Sections {
		if name, found := strings.CutPrefix(s.Name, ".text."); found {
			names = append(names, name)
		}
	}
	return names, nil
}

// unpackLZ4 unpacks a block of LZ4, which compilers before CUDA 13 write, by way of the
// format S2.
func unpackLZ4(packed []byte) ([]byte, error) {
	block, size, err := new(s2.LZ4Converter).ConvertBlock(make([]byte, 0, 2*len(packed)+alignment), packed)
	if err != nil {
		return nil, err
	}
	if size > maxCode {
		return nil, fmt.Errorf("it unpacks to %d bytes, at most %d are read", size, maxCode)
	}
	return s2.Decode(nil, append(binary.AppendUvarint(nil, uint64(size)), block...))
}

// section returns the bytes of a library that hold its fat binaries.
func section(library []byte) ([]byte, error) {
	f, err := elf.NewFile(bytes.NewReader(library))
	if err != nil {
		return nil, err
	}
	s := f.Section(".nv_fatbin")
	if s == nil {
		return nil, errors.New("it has no section .nv_fatbin, so no kernels of CUDA")
	}
	if s.Offset > uint64(len(library)) || s.Size > uint64(len(library))-s.Offset {
		return nil, errors.New("its section .nv_fatbin ends behind the file")
	}
	return library[s.Offset : s.Offset+s.Size], nil
}

// walk visits each entry of a section. Bytes that it cannot tell are an error: a layout
// that is not understood must not be written to.
func walk(section []byte, visit func(*entry) error) error {
	for at := 0; at < len(section); {
		rest := section[at:]
		if len(rest) < alignment || binary.LittleEndian.Uint64(rest) == 0 {
			at += alignment
			continue
		}
		if len(rest) < containerHeader || binary.LittleEndian.Uint32(rest) != containerMagic {
			return fmt.Errorf("byte %d of the section is no fat binary", at)
		}
		begin, size := uint64(binary.LittleEndian.Uint16(rest[6:])), binary.LittleEndian.Uint64(rest[8:])
		if begin < containerHeader || begin > uint64(len(rest)) || size > uint64(len(rest))-begin {
			return fmt.Errorf("the fat binary at byte %d ends behind the section", at)
		}
		end := at + int(begin+size)
		container := at
		err := walkEntries(section[:end], at+int(begin), func(e *entry) error {
			e.container = container
			return visit(e)
		})
		if err != nil {
			return fmt.Errorf("the fat binary at byte %d: %w", at, err)
		}
		at = (end + alignment - 1) / alignment * alignment
	}
	return nil
}

// walkEntries visits the entries from a byte of the section to the end of what is given
// of it.
func walkEntries(section []byte, at int, visit func(*entry) error) error {
	for at < len(section) {
		rest := section[at:]
		if len(rest) < entryHeader {
			return errors.New("an entry has no room for its header")
		}
		header, size := uint64(binary.LittleEndian.Uint32(rest[4:])), binary.LittleEndian.Uint64(rest[8:])
		if header < entryHeader || header > uint64(len(rest)) || size > uint64(len(rest))-header {
			return errors.New("an entry ends behind it")
		}
		e := entry{
			kind: binary.LittleEndian.Uint16(rest), packed: int(binary.LittleEndian.Uint32(rest[16:])),
			arch: int(binary.LittleEndian.Uint32(rest[28:])), flags: binary.LittleEndian.Uint64(rest[40:]),
			at: at + int(header), code: rest[header : header+size],
		}
		if e.packed > len(e.code) {
			return errors.New("an entry holds less than it says")
		}
		if err := visit(&e); err != nil {
			return err
		}
		at += int(header + size)
	}
	return nil
}

// thinner says what stays.
type thinner struct {
	archs []int

	// drop matches the names of kernels that go. nil drops nothing.
	drop *regexp.Regexp
	d    *zstd.Decoder
}

// thin blanks in place what does not stay. Code without a kernel stays. PTX goes: what
// the architectures that stay need they must have as code.
func (t *thinner) thin(library []byte) error {
	s, err := section(library)
	if err != nil {
		return err
	}
	return walk(s, func(e *entry) error {
		stays := e.kind == kindCode && slices.Contains(t.archs, e.arch)
		if stays && t.drop != nil && !e.blank() {
			names, err := e.kernels(t.d)
			if err != nil {
				return err
			}
			names = slices.DeleteFunc(names, func(n string) bool { return strings.Contains(n, attributes) })
			stays = len(names) == 0 || slices.ContainsFunc(names, func(n string) bool { return !t.drop.MatchString(n) })
		}
		if !stays {
			clear(e.code)
		}
		return nil
	})
}

// count is what is left of one architecture.
type count struct {
	entries, of   int
	kernels       int
	bytes, before int
}

// check compares a result with its original, and returns what each architecture has
// left. Every byte outside of blanked code must be as it was; the architectures that
// stay must have kernels left, each in code that unpacks to an ELF file for CUDA; and
// where there was PTX, each of them must have had code.
func (t *thinner) check(before, after []byte) (map[int]*count, error) {
	was, err := section(before)
	if err != nil {
		return nil, err
	}
	is, err := section(after)
	if err != nil {
		return nil, err
	}
	var originals []entry
	ptx, code := map[int]bool{}, map[[2]int]bool{} // by container, and its architectures
	err = walk(was, func(e *entry) error {
		originals = append(originals, *e)
		if e.kind == kindCode {
			code[[2]int{e.container, e.arch}] = true
		} else {
			ptx[e.container] = true
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	for at := range ptx {
		for _, arch := range t.archs {
			if !code[[2]int{at, arch}] {
				return nil, fmt.Errorf("the fat binary at byte %d has PTX and no code for architecture %d", at, arch)
			}
		}
	}
	counts, restored, i := map[int]*count{}, bytes.Clone(after), 0
	into, err := section(restored)
	if err != nil {
		return nil, err
	}
	err = walk(is, func(e *entry) error {
		if i == len(originals) {
			return errors.New("there are more entries than before")
		}
		o := &originals[i]
		i++
		c := counts[e.arch]
		if c == nil {
			c = new(count)
			counts[e.arch] = c
		}
		c.of, c.before = c.of+1, c.before+len(o.code)
		if e.blank() {
			copy(into[e.at:], o.code)
			return nil
		}
		c.entries, c.bytes = c.entries+1, c.bytes+len(e.code)
		names, err := e.kernels(t.d)
		c.kernels += len(names)
		return err
	})
	switch {
	case err != nil:
		return nil, err
	case !bytes.Equal(restored, before):
		return nil, errors.New("bytes changed that are no code")
	}
	for _, arch := range t.archs {
		if c := counts[arch]; c == nil || c.kernels == 0 {
			return nil, fmt.Errorf("no kernel for architecture %d is left; the library has %v", arch, archsOf(counts))
		}
	}
	return counts, nil
}

// archsOf returns the architectures of which there is something, in ascending order.
func archsOf(counts map[int]*count) (list []int) {
	for arch := range counts {
		list = append(list, arch)
	}
	slices.Sort(list)
	return list
}

// run writes a thinned copy of a library. Nothing is written unless the copy is checked: what stays
// must be as it was, byte for byte.
func run(archs, drop, in, out string) (err error) {
	t := thinner{}
	for text := range strings.SplitSeq(archs, ",") {
		arch, err := strconv.Atoi(text)
		if err != nil {
			return fmt.Errorf("architecture %q: want numbers such as 90, separated by commas", text)
		}
		t.archs = append(t.archs, arch)
	}
	if drop != "" {
		if t.drop, err = regexp.Compile(drop); err != nil {
			return err
		}
	}
	if t.d, err = zstd.NewReader(nil, zstd.WithDecoderMaxMemory(maxCode)); err != nil {
		return err
	}
	defer t.d.Close()
	before, err := os.ReadFile(in)
	if err != nil {
		return err
	}
	after := bytes.Clone(before)
	if err := t.thin(after); err != nil {
		return fmt.Errorf("%s: %w", in, err)
	}
	counts, err := t.check(before, after)
	if err != nil {
		return fmt.Errorf("%s: the result is not what it should be: %w", in, err)
	}
	if err := os.WriteFile(out, after, 0o755); err != nil {
		return err
	}
	for _, arch := range archsOf(counts) {
		c := counts[arch]
		fmt.Printf("architecture %d: %d of %d entries stay, %d kernels, %.1f of %.1f MB\n",
			arch, c.entries, c.of, c.kernels, float64(c.bytes)/1e6, float64(c.before)/1e6)
	}
	return nil
}

func main() {
	archs := flag.String("arch", "", "architectures that stay, such as 90 or 80,90")
	drop := flag.String("drop", "", "regular expression of the kernels that go all the same")
	flag.Parse()
	if flag.NArg() != 2 || *archs == "" {
		fmt.Fprintln(os.Stderr, "usage: thinfatbin -arch 90 [-drop REGEXP] IN OUT")
		os.Exit(2)
	}
	if err := run(*archs, *drop, flag.Arg(0), flag.Arg(1)); err != nil {
		fmt.Fprintln(os.Stderr, "thinfatbin:", err)
		os.Exit(1)
	}
}
