package access

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/overlapd/overlapd/internal/fakes/fakeca"
)

// What a client brings lets it in.
func TestCredentials(t *testing.T) {
	ca := fakeca.New(t.TempDir())
	cert, key := ca.Pair("server", time.Hour)
	mine, mineKey := ca.Pair("client", time.Hour)
	file := tokenFile(t, "# ours\n"+first+"\n"+second+"\n")
	a := opened(t, Options{TokenFile: file, Cert: cert, Key: key, CA: ca.File()})
	header, c, err := ReadCredentials(Options{TokenFile: file, CA: ca.File(), Cert: mine, Key: mineKey})
	if err != nil || header != "Bearer "+first || !a.Allows([]byte(header)) {
		t.Fatalf("%q, %v", header, err)
	}
	if _, _, err := shake(t, a.TLS(), c); err != nil {
		t.Error(err)
	}
	header, none, err := ReadCredentials(Options{})
	if err != nil || header != "" || none.RootCAs != nil || none.InsecureSkipVerify {
		t.Errorf("%q, %+v, %v", header, none, err)
	}
	if _, _, err := shake(t, a.TLS(), none); err == nil {
		t.Error("a client trusts an authority that it was not told of")
	}
}

func TestCredentialsRefused(t *testing.T) {
	ca := fakeca.New(t.TempDir())
	cert, key := ca.Pair("client", time.Hour)
	none := filepath.Join(t.TempDir(), "none")
	for name, c := range map[string]struct {
		o    Options
		kind error
	}{
		"no file of tokens":  {Options{TokenFile: none}, ErrTokens},
		"no token":           {Options{TokenFile: tokenFile(t, "#\n")}, ErrTokens},
		"a wrong token":      {Options{TokenFile: tokenFile(t, "a b c d e f g h i j k")}, ErrTokens},
		"no authority":       {Options{CA: none}, ErrCertificates},
		"a key as authority": {Options{CA: key}, ErrCertificates},
		"no key":             {Options{Cert: cert}, ErrCertificates},
		"no certificate":     {Options{Key: key}, ErrCertificates},
	} {
		_, _, err := ReadCredentials(c.o)
		if !errors.Is(err, c.kind) || strings.Contains(err.Error(), "a b c") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
