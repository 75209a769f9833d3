package query

// Memory is a piece of memory shared with workers. Bytes is its mapping in this process.
// Offset is the position of its first byte in the shared memory file, a multiple of
// Alignment.
type Memory struct {
	Bytes  []byte
	Offset int64
}

// Alignment is the alignment of each input in shared memory, in bytes. It is the size of a
// cache line and of the widest vector register.
const Alignment = 64

// Aligned rounds n up to a multiple of Alignment.
func Aligned(n int64) int64 { return (n + Alignment - 1) &^ (Alignment - 1) }
