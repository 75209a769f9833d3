package daemon

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"strings"
	"time"
)

const (
	// handshakeTime is for a new connection to agree on keys. One that says
	// nothing, or a byte now and then, is closed after it.
	handshakeTime = 10 * time.Second

	// protocolHTTP is what clients may ask for by ALPN: fasthttp has no HTTP/2.
	protocolHTTP = "http/1.1"

	maxHandshakePeek = 5 // bytes that TLS calls the header of a record
)

// errPlain goes to a client that does not speak TLS where it is spoken.
const errPlain = "HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\n" +
	"Connection: close\r\nContent-Length: 70\r\n\r\n" +
	`{"error":"this port speaks TLS: ask with https://","reason":"invalid"}`

// secure has a connection encrypted. The handshake is the first read's, in the
// goroutine of the connection: accepting never waits for a client.
func (c *conn) secure(config *tls.Config) { c.tls = tls.Server(c.Conn, config) }

// Read reads what the client has sent, decrypted.
func (c *conn) Read(p []byte) (n int, err error) {
	if c.tls == nil {
		n, err = c.Conn.Read(p)
	} else if err = c.shake(); err == nil {
		n, err = c.tls.Read(p)
	}
	if n > 0 && !c.spoken.Load() {
		c.spoken.Store(true)
	}
	return n, err
}

// Write sends, encrypted.
func (c *conn) Write(p []byte) (int, error) {
	if c.tls == nil {
		return c.Conn.Write(p)
	}
	return c.tls.Write(p)
}

// shake agrees on keys, once.
func (c *conn) shake() error {
	if c.shaken {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), handshakeTime)
	defer cancel()
	err := c.tls.HandshakeContext(ctx)
	c.shaken = err == nil
	var record tls.RecordHeaderError
	if errors.As(err, &record) && record.Conn != nil && speaksHTTP(record.RecordHeader) {
		c.linger.Store(true)
		_ = c.Conn.SetWriteDeadline(time.Now().Add(acceptPause)) // the buffer of a new connection holds it
		_, _ = io.WriteString(c.Conn, errPlain)
	}
	return err
}

// speaksHTTP reports whether what came instead of a handshake begins a request.
func speaksHTTP(begin [maxHandshakePeek]byte) bool {
	for _, method := range []string{"GET /", "HEAD ", "POST ", "PUT /", "OPTIO", "DELET", "PATCH"} {
		if strings.HasPrefix(method, string(begin[:])) {
			return true
		}
	}
	return false
}

// closeSecure says goodbye, unless nobody would hear it, and closes.
func (c *conn) closeSecure() error {
	if c.tls == nil || c.linger.Load() || c.gone() {
		return c.Conn.Close()
	}
	err := c.tls.Close()
	if errors.Is(err, net.ErrClosed) || c.gone() {
		return nil // the client was quicker
	}
	return err
}
