package daemon

import (
	"bytes"
	"strings"
)

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
