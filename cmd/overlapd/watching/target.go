package watching

import (
	"cmp"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/valyala/fasthttp"

	"github.com/overlapd/overlapd/daemon/access"
	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/daemon/status"
)

const (
	// defaultURL is that of a daemon whose configuration names none.
	defaultURL = "http://127.0.0.1:8000"

	// statusTimeout is that of each request. A daemon answers them between two rounds.
	statusTimeout = 5 * time.Second

	// maxAnswerBytes bounds an answer, because the server may be another than a daemon.
	maxAnswerBytes = 64 << 20

	// urlVariable is the address of the daemon, where no flag names one.
	urlVariable = "OVERLAPD_URL"

	// tokenFileVariable names the file of the token, where no flag does.
	tokenFileVariable = "OVERLAPD_TOKEN_FILE"
)

// target is a daemon that commands ask over HTTP. The flags set base, config and
// credentials, find and open all else. The Authorization header may be empty.
type target struct {
	base        string
	config      string
	credentials access.Options

	// url, header and client are what open makes of them.
	url    *url.URL
	header string
	client fasthttp.Client
}

// flags adds the flags to a command, before which the target is found and opened.
func (t *target) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&t.base, "url", "", "URL of the daemon, http:// or https:// (default $"+urlVariable+", or else "+defaultURL+")")
	f.StringVarP(&t.config, "config", "c", "", "the daemon's configuration file, to find its address")
	f.StringVar(&t.credentials.TokenFile, "token-file", "", "file whose first token is sent to the daemon (default $"+tokenFileVariable+")")
	f.StringVar(&t.credentials.CA, "ca", "", "PEM file of the authorities that sign the daemon's certificate, instead of the system's")
	f.StringVar(&t.credentials.Cert, "cert", "", "PEM file of the client certificate")
	f.StringVar(&t.credentials.Key, "key", "", "PEM file of the key of --cert")
	cmd.MarkFlagsMutuallyExclusive("url", "config")
	cmd.PreRunE = func(*cobra.Command, []string) error { return t.open() }
}

// open finds the daemon and reads the credentials. It does not connect.
func (t *target) open() (err error) {
	t.credentials.TokenFile = cmp.Or(t.credentials.TokenFile, os.Getenv(tokenFileVariable))
	// A configuration that cannot be read is an error, also where its address is the default.
	if t.config != "" {
		c, err := config.Load(t.config)
		if err != nil {
			return err
		}
		if err := t.follow(&c); err != nil {
			return fmt.Errorf("%s: %w", t.config, err)
		}
	}
	t.base = cmp.Or(t.base, os.Getenv(urlVariable), defaultURL)
	t.url, err = url.Parse(t.base)
	if err != nil || t.url.Scheme != "http" && t.url.Scheme != "https" || t.url.Host == "" {
		return fmt.Errorf("the URL of a daemon must be http://host:port or https://host:port, not %q", t.base)
	}
	t.client.MaxResponseBodySize, t.client.NoDefaultUserAgentHeader = maxAnswerBytes, true
	t.header, t.client.TLSConfig, err = access.ReadCredentials(t.credentials)
	return err
}

// follow takes the address of a configuration, and of its certificate and tokens what
// no flag names. An address that stands for every one of the host is asked by loopback.
func (t *target) follow(c *config.Config) error {
	scheme := "http"
	if c.TLS.Cert != "" {
		scheme, t.credentials.CA = "https", cmp.Or(t.credentials.CA, c.TLS.Cert)
	}
	t.credentials.TokenFile = cmp.Or(t.credentials.TokenFile, c.Access.TokenFile)
	if path, ok := strings.CutPrefix(c.Listen, config.UnixPrefix); ok {
		t.base = scheme + "://localhost"
		t.client.Dial = func(string) (net.Conn, error) { return net.DialTimeout("unix", path, statusTimeout) }
		return nil
	}
	host, port, err := net.SplitHostPort(c.Listen)
	switch ip := net.ParseIP(host); {
	case err != nil:
		return err
	case port == "0":
		// Which port it is, only the daemon knows.
		return fmt.Errorf("listen = %q leaves the port to the system: give --url; the daemon's log has the port", c.Listen)
	case host == "" || ip.IsUnspecified() && ip.To4() != nil:
		host = "127.0.0.1"
	case ip.IsUnspecified():
		host = "::1"
	}
	t.base = scheme + "://" + net.JoinHostPort(host, port)
	return nil
}

// errUnauthorized is told from other answers, since the remedy is here and not at the daemon.
var errUnauthorized = errors.New("the daemon requires a token: name a file with one of its tokens, with --token-file or $" + tokenFileVariable)

// explain adds what to do about a connection that TLS ended.
func (t *target) explain(err error) error {
	var stranger x509.UnknownAuthorityError
	switch {
	case errors.As(err, &stranger):
		return fmt.Errorf("%w: name the file of its authority with --ca", err)
	case t.url.Scheme == "https" && errors.Is(err, fasthttp.ErrConnectionClosed):
		return errors.New("the daemon closed the connection: if it sets tls.client_ca, give a certificate of that authority with --cert and --key")
	}
	return err
}

// get does not follow redirects, so that the token goes nowhere else.
func (t *target) get(path, query string) (code int, body []byte, err error) {
	u := t.url.JoinPath(path)
	u.RawQuery = query
	var q fasthttp.Request
	var a fasthttp.Response
	q.SetRequestURI(u.String())
	if t.header != "" {
		q.Header.Set(fasthttp.HeaderAuthorization, t.header)
	}
	if err := t.client.DoTimeout(&q, &a, statusTimeout); err != nil {
		return 0, nil, fmt.Errorf("no daemon answers at %s: %w; start one with overlapd serve, or name another with --url or --config", t.base, t.explain(err))
	}
	// The body is for programs; a user needs to know how to give a token.
	if a.StatusCode() == fasthttp.StatusUnauthorized {
		return a.StatusCode(), nil, errUnauthorized
	}
	return a.StatusCode(), a.Body(), nil
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
		return fmt.Errorf("the server at %s has no %s (HTTP status %d): it is not overlapd, is an older version, or has no such instance (overlapd status --json lists them)", t.base, what, code)
	}
	return nil
}

// CompleteServices offers the services of the configuration that the command line
// names, else those of the daemon that the command would ask.
func CompleteServices(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	if path := cmd.Flag("config").Value.String(); path != "" {
		if c, err := config.Load(path); err == nil {
			return c.Names(), cobra.ShellCompDirectiveNoFileComp
		}
	}
	var at target
	asks := new(cobra.Command)
	at.flags(asks)
	cmd.Flags().Visit(func(f *pflag.Flag) { _ = asks.Flags().Set(f.Name, f.Value.String()) }) // flags of others are unknown
	var names []string
	var s status.Status
	if at.open() == nil && at.ask("/overlapd/status", "", "status", &s, func() bool { return true }) == nil {
		for i := range s.Services {
			names = append(names, s.Services[i].Name)
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
