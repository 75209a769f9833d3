package daemon

import (
	"bytes"
	"compress/gzip"
	"compress/zlib"
	"io"
	"strings"
	"sync"
)

// packer compresses; its state is large, so it is used again.
type packer interface {
	io.WriteCloser
	Reset(io.Writer)
}

var (
	gzipPackers = sync.Pool{New: func() any { return fastest(gzip.NewWriterLevel(nil, gzip.BestSpeed)) }}
	zlibPackers = sync.Pool{New: func() any { return fastest(zlib.NewWriterLevel(nil, zlib.BestSpeed)) }}
)

// fastest returns w: the level is one that exists.
func fastest[T packer](w T, _ error) packer { return w }

// pack compresses b. What the protocol calls deflate is the zlib format.
func pack(encoding string, b []byte) []byte {
	pool := &gzipPackers
	if encoding == "deflate" {
		pool = &zlibPackers
	}
	w := pool.Get().(packer)
	defer pool.Put(w)
	var out bytes.Buffer
	w.Reset(&out)
	_, _ = w.Write(b) // a buffer takes everything
	w.Close()
	return out.Bytes()
}

// acceptedEncoding returns the encoding of Accept-Encoding that is used, or
// "". Where both are accepted, gzip is.
func acceptedEncoding(header []byte) string {
	best := ""
	for item := range bytes.SplitSeq(header, []byte{','}) {
		name, params, _ := strings.Cut(string(item), ";")
		if refused(params) {
			continue
		}
		switch strings.ToLower(strings.TrimSpace(name)) {
		case "gzip":
			return "gzip"
		case "deflate":
			best = "deflate"
		}
	}
	return best
}

// refused reports whether the weight of an encoding is zero.
func refused(params string) bool {
	q, ok := strings.CutPrefix(strings.ReplaceAll(params, " ", ""), "q=")
	return ok && strings.Trim(q, "0.") == ""
}
