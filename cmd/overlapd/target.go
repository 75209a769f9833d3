package main

import (
	"cmp"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"os"
	"time"

	"github.com/spf13/pflag"
	"github.com/valyala/fasthttp"

	"github.com/overlapd/overlapd/daemon/access"
)

const (
	// defaultURL is where a daemon listens that was told nothing else.
	defaultURL = "http://127.0.0.1:8000"

	// statusTimeout bounds each question to the daemon.
	statusTimeout = 5 * time.Second

	// tokenFileVariable names the file of the token, where no flag does.
	tokenFileVariable = "OVERLAPD_TOKEN_FILE"

	// maxAnswerBytes bounds what a daemon, or what poses as one, may answer.
	maxAnswerBytes = 64 << 20
)

// target is a daemon that is asked, and what it is asked with.
type target struct {
	base        string
	credentials access.ClientOptions

	url    *url.URL
	header string // Authorization, "" for none
	client *fasthttp.Client
}

func (t *target) flags(f *pflag.FlagSet) {
	f.StringVar(&t.base, "url", defaultURL, "the daemon, http:// or https://")
	credentialFlags(f, &t.credentials)
}

// credentialFlags are those of every command that asks a daemon.
func credentialFlags(f *pflag.FlagSet, o *access.ClientOptions) {
	f.StringVar(&o.TokenFile, "token-file", "", "file whose first token lets in; without it $"+tokenFileVariable)
	f.StringVar(&o.CA, "ca", "", "PEM file of the authorities that the daemon's certificate is of, instead of the system's")
	f.StringVar(&o.Cert, "cert", "", "PEM file of a certificate to show to the daemon")
	f.StringVar(&o.Key, "key", "", "PEM file of the key of --cert")
}

// readCredentials reads what the flags name, and the environment.
func readCredentials(o access.ClientOptions) (access.Credentials, error) {
	o.TokenFile = cmp.Or(o.TokenFile, os.Getenv(tokenFileVariable))
	return access.ReadCredentials(o)
}

// open reads the address and the credentials.
func (t *target) open() (err error) {
	t.url, err = url.Parse(t.base)
	if err != nil || t.url.Scheme != "http" && t.url.Scheme != "https" || t.url.Host == "" {
		return fmt.Errorf("the URL of a daemon is http://host:port or https://host:port, not %q", t.base)
	}
	c, err := readCredentials(t.credentials)
	if err != nil {
		return err
	}
	t.header = c.Header()
	t.client = &fasthttp.Client{TLSConfig: c.TLS, MaxResponseBodySize: maxAnswerBytes, NoDefaultUserAgentHeader: true}
	return nil
}

// errUnauthorized is returned where a daemon wants a token that it did not get.
var errUnauthorized = errors.New("the daemon wants a token: name a file that holds one of its tokens with --token-file or $" + tokenFileVariable)

// explain adds what to do about a connection that TLS ended.
func (t *target) explain(err error) error {
	var stranger x509.UnknownAuthorityError
	switch {
	case errors.As(err, &stranger):
		return fmt.Errorf("%w: name the file of its authority with --ca", err)
	case t.url.Scheme == "https" && errors.Is(err, fasthttp.ErrConnectionClosed):
		return errors.New("it closed the connection: where tls.client_ca is set, show a certificate of that authority with --cert and --key")
	}
	return err
}

// get asks for what is at a path. The token goes nowhere else: an answer that
// points elsewhere is not followed.
func (t *target) get(path, query string) (code int, body []byte, err error) {
	u := t.url.JoinPath(path)
	u.RawQuery = query
	q, a := fasthttp.AcquireRequest(), fasthttp.AcquireResponse()
	defer fasthttp.ReleaseRequest(q)
	defer fasthttp.ReleaseResponse(a)
	q.SetRequestURI(u.String())
	if t.header != "" {
		q.Header.Set(fasthttp.HeaderAuthorization, t.header)
	}
	if err := t.client.DoTimeout(q, a, statusTimeout); err != nil {
		return 0, nil, t.explain(err)
	}
	if a.StatusCode() == fasthttp.StatusUnauthorized {
		return a.StatusCode(), nil, errUnauthorized
	}
	return a.StatusCode(), append([]byte(nil), a.Body()...), nil
}
