package main

import (
	"cmp"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/url"
	"os"
	"strconv"
	"time"

	"github.com/spf13/pflag"
	"github.com/valyala/fasthttp"

	"github.com/overlapd/overlapd/daemon/access"
	"github.com/overlapd/overlapd/daemon/observe/timeline"
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

// noRounds asks a timeline for nothing but how it stands.
const noRounds = math.MaxInt64

// askTimeline asks a daemon for the rounds of an instance after one, or for the
// latest ones.
func askTimeline(t *target, instance int, since uint64) (p timeline.Page, err error) {
	query := "instance=" + strconv.Itoa(instance)
	if since != timeline.Latest {
		query += "&since=" + strconv.FormatUint(since, 10)
	}
	code, body, err := t.get("/overlapd/timeline", query)
	if errors.Is(err, errUnauthorized) {
		return p, err
	}
	if err != nil {
		return p, fmt.Errorf("no daemon answers at %s: %w; start one with overlapd serve", t.base, err)
	}
	if code == fasthttp.StatusBadRequest {
		return p, fmt.Errorf("the daemon at %s has no instance %d: overlapd status --json lists them", t.base, instance)
	}
	if err := json.Unmarshal(body, &p); err != nil || code != fasthttp.StatusOK || p.Services == nil {
		return p, fmt.Errorf("what answers at %s has no timeline (HTTP status %d): it is no overlapd, or an older one", t.base, code)
	}
	return p, nil
}

// askRecent asks what became of the last queries, on every instance.
func askRecent(t *target, instances int) (all []timeline.Service, err error) {
	for i := range max(1, instances) {
		p, err := askTimeline(t, i, noRounds)
		if err != nil {
			return nil, err
		}
		all = append(all, p.Services...)
	}
	return all, nil
}

// short writes a latency with three digits, and none as a dash.
func short(d time.Duration) string {
	switch {
	case d <= 0:
		return "-"
	case d < 100*time.Millisecond:
		return d.Round(10 * time.Microsecond).String()
	}
	return d.Round(time.Millisecond).String()
}

// missedOf writes the share of the last queries that were late or without an
// answer.
func missedOf(s *timeline.Service) string {
	if s.Ended == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f %%", 100*float64(s.Missed)/float64(s.Ended))
}
