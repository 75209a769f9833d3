package http

import (
	"bytes"
	"compress/gzip"
	"compress/zlib"
	"io"
	"testing"
)

func TestAcceptedEncoding(t *testing.T) {
	for header, want := range map[string]string{
		"":                                 "",
		"identity":                         "",
		"br":                               "",
		"*":                                "",
		"gzip":                             "gzip",
		"GZip":                             "gzip",
		"deflate":                          "deflate",
		"deflate, gzip":                    "gzip",
		"gzip;q=0.001":                     "gzip",
		"gzip ; q=0.5 , deflate":           "gzip",
		"gzip;q=0, deflate":                "deflate",
		"gzip; q=0":                        "",
		"gzip; q = 0.000":                  "",
		"gzip;q=0.0, deflate;q=0":          "",
		"br;q=1.0, gzip;q=0.8, *;q=0.1":    "gzip",
		"xgzip, gzipx":                     "",
		",,":                               "",
		"deflate;q=0.5;level=1, compress":  "deflate",
		"identity;q=1, deflate;q=0, gzip;": "gzip",
	} {
		if got := acceptedEncoding([]byte(header)); got != want {
			t.Errorf("%q: %q, want %q", header, got, want)
		}
	}
}

func unpackWith(t *testing.T, encoding string, packed []byte) []byte {
	t.Helper()
	var r io.Reader
	var err error
	if encoding == "gzip" {
		r, err = gzip.NewReader(bytes.NewReader(packed))
	} else {
		r, err = zlib.NewReader(bytes.NewReader(packed))
	}
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Compressors are used again; nothing of one answer may get into another.
func TestPack(t *testing.T) {
	for _, encoding := range []string{"gzip", "deflate"} {
		for _, size := range []int{0, 1, 100, 1 << 20, 7} {
			want := bytes.Repeat([]byte{byte(size), 1}, size)
			packed := pack(encoding, nil, want)
			if got := unpackWith(t, encoding, packed); !bytes.Equal(got, want) {
				t.Errorf("%s: %d bytes came back as %d others", encoding, len(want), len(got))
			}
			if size > 1000 && len(packed) > size/10 {
				t.Errorf("%s: %d equal bytes take %d", encoding, len(want), len(packed))
			}
		}
	}
}
