package zoo

// stream is a splitmix64 generator. Every tensor has its own, so that the
// content of one does not depend on the others.
type stream struct {
	state uint64
	spare uint32
	full  bool // spare holds a number
}

const (
	streamStep = 0x9e3779b97f4a7c15
	fnvOffset  = 0xcbf29ce484222325
	fnvPrime   = 0x100000001b3
)

// newStream returns the stream of the tensor called name. The name enters as
// its FNV-1a hash.
func newStream(seed uint64, name string) *stream {
	hash := uint64(fnvOffset)
	for i := range len(name) {
		hash = (hash ^ uint64(name[i])) * fnvPrime
	}
	return &stream{state: mix(seed+streamStep) ^ hash}
}

// next returns a number in [-1, 1) with 24 bits of randomness, which float32
// holds exactly.
func (s *stream) next() float32 {
	const scale = 1.0 / (1 << 23)
	bits := s.spare
	if s.full = !s.full; s.full {
		s.state += streamStep
		z := mix(s.state)
		bits, s.spare = uint32(z>>32), uint32(z)
	}
	return float32(int32(bits)>>8) * scale
}

// mix is the output function of splitmix64.
func mix(z uint64) uint64 {
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}
