package main

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/url"
	"os"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/valyala/fasthttp"

	"github.com/overlapd/overlapd/daemon/access"
	"github.com/overlapd/overlapd/daemon/observe/timeline"
)

const (
	// defaultURL is the address of a daemon whose configuration names none.
	defaultURL = "http://127.0.0.1:8000"

	// statusTimeout limits each request.
	statusTimeout = 5 * time.Second

	// tokenFileVariable names the file of the token, where no flag does.
	tokenFileVariable = "OVERLAPD_TOKEN_FILE"

	// maxAnswerBytes limits an answer: the server may be another than a daemon.
	maxAnswerBytes = 64 << 20
)

// target is a daemon that commands ask over HTTP. The flags set base and
// credentials, open all else. The Authorization header may be empty.
type target struct {
	base        string
	credentials access.Options

	url    *url.URL
	header string
	client *fasthttp.Client
}

// flags adds the flags to a command, before which the target is opened.
func (t *target) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&t.base, "url", defaultURL, "the daemon, http:// or https://")
	credentialFlags(cmd.Flags(), &t.credentials)
	cmd.PreRunE = func(*cobra.Command, []string) error { return t.open() }
}

// credentialFlags adds the flags by which a command authenticates to a daemon.
func credentialFlags(f *pflag.FlagSet, o *access.Options) {
	f.StringVar(&o.TokenFile, "token-file", "", "file whose first token lets in; without it $"+tokenFileVariable)
	f.StringVar(&o.CA, "ca", "", "PEM file of the authorities that the daemon's certificate is of, instead of the system's")
	f.StringVar(&o.Cert, "cert", "", "PEM file of a certificate to show to the daemon")
	f.StringVar(&o.Key, "key", "", "PEM file of the key of --cert")
}

// readCredentials reads the files that the flags name, or else the environment.
func readCredentials(o access.Options) (authorization string, c *tls.Config, err error) {
	o.TokenFile = cmp.Or(o.TokenFile, os.Getenv(tokenFileVariable))
	return access.ReadCredentials(o)
}

// open reads the address and the credentials. It does not connect.
func (t *target) open() (err error) {
	t.url, err = url.Parse(t.base)
	if err != nil || t.url.Scheme != "http" && t.url.Scheme != "https" || t.url.Host == "" {
		return fmt.Errorf("the URL of a daemon is http://host:port or https://host:port, not %q", t.base)
	}
	authorization, c, err := readCredentials(t.credentials)
	if err != nil {
		return err
	}
	t.header = authorization
	t.client = &fasthttp.Client{TLSConfig: c, MaxResponseBodySize: maxAnswerBytes, NoDefaultUserAgentHeader: true}
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

// get returns what the daemon answers at a path. Redirects are not followed, so
// that the token goes nowhere else.
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
		return 0, nil, fmt.Errorf("no daemon answers at %s: %w; start one with overlapd serve", t.base, t.explain(err))
	}
	if a.StatusCode() == fasthttp.StatusUnauthorized {
		return a.StatusCode(), nil, errUnauthorized
	}
	return a.StatusCode(), append([]byte(nil), a.Body()...), nil
}

// ask decodes the JSON that the daemon answers at a path. What names the content
// in the error for an answer that is none, as one of a foreign server or an older
// daemon; such an answer also leaves whole false.
func (t *target) ask(path, query, what string, into any, whole func() bool) error {
	code, body, err := t.get(path, query)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(body, into); err != nil || code != fasthttp.StatusOK || !whole() {
		return fmt.Errorf("what answers at %s has no %s (HTTP status %d): it is no overlapd, an older one, or has no such instance (overlapd status --json lists them)", t.base, what, code)
	}
	return nil
}

// noRounds asks a timeline for no rounds, only for its services and its position.
const noRounds = math.MaxInt64

// pageQuery asks for what an instance has after a position, or for the latest.
func pageQuery(instance int, since uint64) string {
	query := "instance=" + strconv.Itoa(instance)
	if since != timeline.Latest {
		query += "&since=" + strconv.FormatUint(since, 10)
	}
	return query
}

func askTimeline(t *target, instance int, since uint64) (p timeline.Page, err error) {
	err = t.ask("/overlapd/timeline", pageQuery(instance, since), "timeline", &p, func() bool { return p.Services != nil })
	return p, err
}

func askQueries(t *target, instance int, since uint64) (p timeline.QueryPage, err error) {
	err = t.ask("/overlapd/queries", pageQuery(instance, since), "queries", &p, func() bool { return p.Queries != nil })
	return p, err
}

// askRecent returns the services of all instances with their last queries.
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

// short formats a latency with three digits, and none as a dash.
func short(d time.Duration) string {
	switch {
	case d <= 0:
		return "-"
	case d < 100*time.Millisecond:
		return d.Round(10 * time.Microsecond).String()
	}
	return d.Round(time.Millisecond).String()
}

// missedOf formats the share of the last queries that were late or without an
// answer.
func missedOf(s *timeline.Service) string {
	if s.Ended == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f %%", 100*float64(s.Missed)/float64(s.Ended))
}
