package admin

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/overlapd/overlapd/daemon/config"
)

const (
	// maxLineBytes limits a line of the response to a reload, maxAnswerBytes any other
	// response. They protect commands from whatever else listens at the path.
	maxLineBytes   = 1 << 20
	maxAnswerBytes = 4 << 20

	// dialTimeout is how long the daemon may take to accept a connection.
	dialTimeout = 5 * time.Second
)

// Client sends requests to a daemon's admin socket. Its errors say what to do; errors
// reported by the daemon are an [Error].
type Client struct {
	path string
	http *http.Client
}

// NewClient returns a client of the socket at path. It does not connect yet.
func NewClient(path string) *Client {
	dialer := &net.Dialer{Timeout: dialTimeout}
	return &Client{path: path, http: &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, "unix", path)
		},
	}}}
}

// Reload makes the daemon read its configuration again and returns the outcome. It calls
// progress for each step as it happens. The reload continues if ctx is cancelled.
func (c *Client) Reload(ctx context.Context, progress func(config.Step)) (*config.Reloaded, error) {
	r, err := c.do(ctx, http.MethodPost, "/reload")
	if err != nil {
		return nil, err
	}
	defer r.Body.Close()
	lines := bufio.NewScanner(r.Body)
	lines.Buffer(nil, maxLineBytes)
	for lines.Scan() {
		var answer line
		if err := json.Unmarshal(lines.Bytes(), &answer); err != nil {
			return nil, c.foreign(err)
		}
		switch {
		case answer.Error != nil:
			return nil, answer.Error
		case answer.Reloaded != nil:
			return answer.Reloaded, nil
		case answer.Step != nil:
			progress(*answer.Step)
		}
	}
	err = lines.Err()
	if err == nil {
		err = io.ErrUnexpectedEOF
	}
	return nil, fmt.Errorf("the daemon stopped before the reload ended: %w; see its log", err)
}

// Last returns the running reload, or else the last one.
func (c *Client) Last(ctx context.Context) (report Report, err error) {
	text, err := c.get(ctx, "/reload")
	if err != nil {
		return report, err
	}
	if err := json.Unmarshal(text, &report); err != nil {
		return report, c.foreign(err)
	}
	return report, nil
}

// Restart starts a service again that has failed permanently.
func (c *Client) Restart(ctx context.Context, service string) error {
	r, err := c.do(ctx, http.MethodPost, "/services/"+url.PathEscape(service)+"/restart")
	if err != nil {
		return err
	}
	return r.Body.Close()
}

// get returns the body of a response.
func (c *Client) get(ctx context.Context, path string) ([]byte, error) {
	r, err := c.do(ctx, http.MethodGet, path)
	if err != nil {
		return nil, err
	}
	defer r.Body.Close()
	text, err := io.ReadAll(io.LimitReader(r.Body, maxAnswerBytes))
	if err != nil {
		return nil, c.foreign(err)
	}
	return text, nil
}

// do sends a request and returns the response. An error response becomes an error.
func (c *Client) do(ctx context.Context, method, path string) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, method, "http://overlapd"+path, http.NoBody)
	if err != nil {
		return nil, err
	}
	r, err := c.http.Do(request)
	if err != nil {
		return nil, c.unreached(err)
	}
	if r.StatusCode == http.StatusOK {
		return r, nil
	}
	defer r.Body.Close()
	var answer line
	if err := json.NewDecoder(io.LimitReader(r.Body, maxLineBytes)).Decode(&answer); err != nil || answer.Error == nil {
		return nil, c.foreign(fmt.Errorf("HTTP status %d", r.StatusCode))
	}
	return nil, answer.Error
}

// unreached explains why the daemon could not be reached and what to do.
func (c *Client) unreached(err error) error {
	switch {
	case errors.Is(err, os.ErrNotExist):
		return fmt.Errorf("there is no admin socket %s: no daemon is running, or it uses another one (admin_socket in its configuration)", c.path)
	case errors.Is(err, unix.ECONNREFUSED):
		return fmt.Errorf("nobody listens at %s: the daemon that created it is gone; start one with overlapd serve", c.path)
	case errors.Is(err, os.ErrPermission):
		return fmt.Errorf("you have no access to %s: become root or the daemon's user, or a member of its admin_group", c.path)
	case len(c.path) > config.MaxSocketPath:
		return fmt.Errorf("%s: %w", c.path, errPathTooLong)
	}
	if e, ok := errors.AsType[*net.OpError](err); ok && e.Op == "dial" || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("request to %s failed: %w", c.path, err)
	}
	return fmt.Errorf("request to %s failed: %w; if it was closed immediately, it has %d connections already or the daemon is stopping: try again", c.path, err, maxConnections)
}

// foreign returns the error for a response that is not overlapd's.
func (c *Client) foreign(err error) error {
	return fmt.Errorf("the server at %s is not overlapd, or is another version: %w", c.path, err)
}
