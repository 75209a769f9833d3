package access

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/overlapd/overlapd/daemon/access/fakeca"
)

// What a client brings lets it in.
func TestCredentials(t *testing.T) {
	ca := fakeca.New(t.TempDir())
	cert, key := ca.Pair("server", time.Hour)
	mine, mineKey := ca.Pair("client", time.Hour)
	file := tokenFile(t, "# ours\n"+first+"\n"+second+"\n")
	a, err := Open(Options{TokenFile: file, Cert: cert, Key: key, ClientCA: ca.File()})
	if err != nil {
		t.Fatal(err)
	}
	c, err := ReadCredentials(ClientOptions{TokenFile: file, CA: ca.File(), Cert: mine, Key: mineKey})
	if err != nil || c.Token != first || !a.Allows([]byte(c.Header())) {
		t.Fatalf("%q, %v", c.Header(), err)
	}
	if _, err, _ := shake(t, a.TLS(), c.TLS); err != nil {
		t.Error(err)
	}
	none, err := ReadCredentials(ClientOptions{})
	if err != nil || none.Header() != "" || none.TLS.RootCAs != nil || none.TLS.InsecureSkipVerify {
		t.Errorf("%+v, %v", none, err)
	}
	if _, err, _ := shake(t, a.TLS(), none.TLS); err == nil {
		t.Error("a client trusts an authority that it was not told of")
	}
}

func TestCredentialsRefused(t *testing.T) {
	ca := fakeca.New(t.TempDir())
	cert, key := ca.Pair("client", time.Hour)
	none := filepath.Join(t.TempDir(), "none")
	for name, c := range map[string]struct {
		o    ClientOptions
		kind error
	}{
		"no file of tokens":  {ClientOptions{TokenFile: none}, ErrTokens},
		"no token":           {ClientOptions{TokenFile: tokenFile(t, "#\n")}, ErrTokens},
		"a wrong token":      {ClientOptions{TokenFile: tokenFile(t, "a b c d e f g h i j k")}, ErrTokens},
		"no authority":       {ClientOptions{CA: none}, ErrCertificates},
		"a key as authority": {ClientOptions{CA: key}, ErrCertificates},
		"no key":             {ClientOptions{Cert: cert}, ErrCertificates},
		"no certificate":     {ClientOptions{Key: key}, ErrCertificates},
	} {
		_, err := ReadCredentials(c.o)
		if !errors.Is(err, c.kind) || strings.Contains(err.Error(), "a b c") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
