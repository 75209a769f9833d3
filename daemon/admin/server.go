// Package admin serves the administration of a running daemon over a Unix socket. Who may
// use it is decided by the credentials of the peer that the kernel reports. [Listen]
// creates the server, [Client] sends requests, and [Reloads] runs one reload at a time.
//
// The protocol is HTTP, so curl --unix-socket works as well:
//
//	POST /reload                  read the configuration again; returns JSON lines of progress and the outcome
//	GET  /reload                  the running reload, or the last one
//	POST /services/NAME/restart   start a service again that failed permanently
//	GET  /config                  the configuration in effect
//	POST /drain                   report not ready, and answer queries as before
//	DELETE /drain                 cancel that
//	GET  /drain                   how many requests are open, and how many have ended
//
// The [Host] performs and logs the operations.
package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/overlapd/overlapd/daemon/access"
	"github.com/overlapd/overlapd/daemon/config"
)

// Limits on requests. All of them are small and local, so generous times only protect
// against stuck clients.
const (
	maxHeaderBytes = 8 << 10
	headerSlack    = 4 << 10 // net/http reads this much more than MaxHeaderBytes
	maxBodyBytes   = 4 << 10 // no request needs a body

	headerTimeout = 5 * time.Second  // for reading a header
	readTimeout   = 10 * time.Second // for reading a request
	idleTimeout   = 30 * time.Second // between two requests
	lineTimeout   = 10 * time.Second // for writing a line, or a response
	closeTimeout  = 2 * time.Second  // for responding to open requests when the server closes
)

// folderMode is the mode of the socket's folder if it must be created.
const folderMode = 0o700

// server serves an admin socket.
type server struct {
	reloads *Reloads

	// refused is called for each connection of a peer that may not administer the daemon.
	// It may be nil.
	refused  func(pid int, uid uint32)
	listener *listener
	http     *http.Server

	// ended is closed when no more connections are accepted.
	ended chan struct{}
}

// Listen creates the socket at path, or uses the inherited one, whose file and mode are not
// changed. Members of the group, given by name or number, may use it; "" means no group.
// refused is called for each connection of a peer that is not allowed, and may be nil.
// Nothing is answered before Serve.
func Listen(path, groupName string, inherited net.Listener, reloads *Reloads, refused func(pid int, uid uint32)) (*server, error) {
	group, err := findGroup(groupName)
	if err != nil {
		return nil, err
	}
	ln := inherited
	if ln == nil {
		if ln, err = open(path, groupName, group); err != nil {
			return nil, err
		}
	}
	s := &server{reloads: reloads, refused: refused, ended: make(chan struct{}), listener: &listener{
		Listener: ln, rule: rule{own: uint32(os.Geteuid()), group: group}, ask: credentials,
		places: make(chan struct{}, maxConnections), refused: make(chan struct{}, maxRefused),
	}}
	s.http = &http.Server{
		Handler:           s.guard(s.routes()),
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       readTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes - headerSlack,
		ConnState: func(c net.Conn, state http.ConnState) {
			if state == http.StateIdle {
				s.listener.silent(c.(*conn), true)
			}
		},
		ConnContext: func(ctx context.Context, c net.Conn) context.Context { return context.WithValue(ctx, connKey{}, c) },
	}
	return s, nil
}

// open creates the socket at path, and its folder if needed.
func open(path, groupName string, group int) (net.Listener, error) {
	if len(path) > config.MaxSocketPath {
		return nil, fmt.Errorf("admin_socket: %s: %w", path, errPathTooLong)
	}
	if err := os.MkdirAll(filepath.Dir(path), folderMode); err != nil {
		return nil, fmt.Errorf("admin_socket: %w", err)
	}
	ln, err := access.ListenUnix(path, group)
	if err != nil {
		return nil, fmt.Errorf("admin_socket (group %q of admin_group): %w", groupName, err)
	}
	return ln, nil
}

// Serve answers requests until Close.
func (s *server) Serve() error {
	defer close(s.ended)
	if err := s.http.Serve(s.listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// Close waits for open requests, at most closeTimeout, and removes the socket. Serve must
// have been called.
func (s *server) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	err := s.http.Shutdown(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		err = s.http.Close()
	}
	<-s.ended
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// routes returns the handlers of all paths.
func (s *server) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /reload", s.reload)
	mux.HandleFunc("GET /reload", s.lastReload)
	mux.HandleFunc("POST /services/{name}/restart", s.restart)
	mux.HandleFunc("GET /config", s.config)
	for _, method := range []string{DrainBegin, DrainCancel, DrainShow} {
		mux.HandleFunc(method+" /drain", s.drain)
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		refuse(w, &Error{KindNotFound, fmt.Sprintf("there is no %s %.100q; there are POST and GET /reload, POST /services/NAME/restart, GET /config, and POST, GET and DELETE /drain", r.Method, r.URL.Path)})
	})
	return mux
}

// guard rejects peers that may not administer the daemon, and limits time and size for the
// others. It responds instead of closing the connection, so that the user learns what is
// missing.
func (s *server) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		out := http.NewResponseController(w)
		if err := out.SetWriteDeadline(time.Now().Add(lineTimeout)); err != nil {
			return
		}
		c, known := r.Context().Value(connKey{}).(*conn)
		if known {
			s.listener.silent(c, false)
		}
		if !known || !c.allowed {
			w.Header().Set("Connection", "close")
			refuse(w, &Error{kindForbidden, s.listener.rule.sentence()})
			if known && s.refused != nil {
				s.refused(c.peer.PID, c.peer.UID)
			}
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, maxBodyBytes)
		next.ServeHTTP(w, r)
	})
}

// refuse responds with an error.
func refuse(w http.ResponseWriter, e *Error) { writeJSON(w, e.status(), line{Error: e}) }

// writeJSON responds with a value as JSON.
func writeJSON(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // the client may have left
}

// reload starts a reload and streams its progress as JSON lines. The reload continues if
// the client leaves.
func (s *server) reload(w http.ResponseWriter, r *http.Request) {
	run, err := s.reloads.Begin()
	if err != nil {
		refuse(w, told(err))
		return
	}
	// The status is decided by the first line: an error before any progress has its own
	// status.
	out, begun := http.NewResponseController(w), false
	write := func(what line) {
		if !begun {
			begun = true
			status := http.StatusOK
			if what.Error != nil {
				status = what.Error.status()
			}
			w.Header().Set("Content-Type", "application/x-ndjson")
			w.WriteHeader(status)
		}
		_ = out.SetWriteDeadline(time.Now().Add(lineTimeout)) // the client may have left
		_ = json.NewEncoder(w).Encode(what)
		_ = out.Flush()
	}
	shown := map[string]config.Step{}
	for {
		now, grown := run.Report()
		for _, step := range now.Steps {
			if shown[step.Service] != step {
				shown[step.Service] = step
				write(line{Step: &step})
			}
		}
		if now.State != reportRunning {
			write(line{Reloaded: now.Reloaded, Error: now.Error})
			return
		}
		select {
		case <-grown:
		case <-r.Context().Done():
			return
		}
	}
}

// lastReload responds with the state of the running or last reload.
func (s *server) lastReload(w http.ResponseWriter, _ *http.Request) {
	now, _ := s.reloads.Last().Report()
	writeJSON(w, http.StatusOK, now)
}

// restart restarts the service in the path.
func (s *server) restart(w http.ResponseWriter, r *http.Request) {
	if err := s.reloads.host.Restart(r.PathValue("name")); err != nil {
		refuse(w, told(err))
		return
	}
	writeJSON(w, http.StatusOK, line{})
}

// config responds with the configuration in effect.
func (s *server) config(w http.ResponseWriter, _ *http.Request) {
	file, err := s.reloads.host.Config()
	if err != nil {
		refuse(w, told(err))
		return
	}
	w.Header().Set("Content-Type", "application/toml")
	_, _ = w.Write(file) // the client may have left
}
