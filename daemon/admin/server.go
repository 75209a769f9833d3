// Package admin changes a running daemon, and lets only those ask who may: over
// a Unix socket, by the credentials that the kernel gives of whoever connects.
// What [Listen] returns answers there, [Client] asks, and [Reloads] sees to it that one
// reload runs at a time, whoever wants it.
//
// It is HTTP, so that curl --unix-socket does as well:
//
//	POST /reload                  read the configuration again; JSON lines of progress, then how it ended
//	GET  /reload                  the reload that runs, or the last one
//	POST /services/NAME/restart   try a service again that was given up
//	GET  /config                  the configuration that holds now
//	POST /drain                   say that the daemon is not ready, and answer queries as before
//	DELETE /drain                 take that back
//	GET  /drain                   how many requests are open, and how many have ended
//
// What a reload or a restart does, and what is logged of it, is the host's
// business.
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

// Limits on what is asked.
const (
	maxHeaderBytes = 8 << 10
	headerSlack    = 4 << 10 // net/http reads so much more than it is told
	maxBodyBytes   = 4 << 10 // no request needs one

	headerTimeout = 5 * time.Second  // to read a header
	readTimeout   = 10 * time.Second // to read a request
	idleTimeout   = 30 * time.Second // between two requests
	lineTimeout   = 10 * time.Second // to write a line, or an answer
	closeTimeout  = 2 * time.Second  // to answer what was asked, at the end
)

// folderMode is of the folder of the socket, if it has to be made.
const folderMode = 0o700

// server answers at an admin socket.
type server struct {
	reloads  *Reloads
	refused  func(pid int, uid uint32) // called for each connection of somebody who may not; may be nil
	listener *listener
	http     *http.Server
	ended    chan struct{} // closed when nothing is accepted any more
}

// Listen makes the socket at path, or takes the one that was inherited, whose file and its
// mode belong to whoever opened it. The members of a group, given by its name or
// number, may use it; "" is for none. Refused is called for each connection of
// somebody who may not, and may be nil. Nothing is answered before Serve.
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

// open makes the socket at path.
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

// Serve answers until Close.
func (s *server) Serve() error {
	defer close(s.ended)
	if err := s.http.Serve(s.listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// Close answers what was asked, for a moment, and removes the socket. Serve
// must have been called.
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

// guard answers those who may not ask, and bounds what the others may take.
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

func refuse(w http.ResponseWriter, e *Error) { writeJSON(w, e.status(), line{Error: e}) }

func writeJSON(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // who left needs no answer
}

// reload begins a reload and writes its progress. That the client leaves does not
// end it.
func (s *server) reload(w http.ResponseWriter, r *http.Request) {
	run, err := s.reloads.Begin()
	if err != nil {
		refuse(w, told(err))
		return
	}
	// Lines are written at once. The status is that of the first: an error that comes
	// before anything was done has its own.
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
		_ = out.SetWriteDeadline(time.Now().Add(lineTimeout)) // who left needs no answer
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

func (s *server) lastReload(w http.ResponseWriter, _ *http.Request) {
	now, _ := s.reloads.Last().Report()
	writeJSON(w, http.StatusOK, now)
}

func (s *server) restart(w http.ResponseWriter, r *http.Request) {
	if err := s.reloads.host.Restart(r.PathValue("name")); err != nil {
		refuse(w, told(err))
		return
	}
	writeJSON(w, http.StatusOK, line{})
}

func (s *server) config(w http.ResponseWriter, _ *http.Request) {
	file, err := s.reloads.host.Config()
	if err != nil {
		refuse(w, told(err))
		return
	}
	w.Header().Set("Content-Type", "application/toml")
	_, _ = w.Write(file) // who left needs no answer
}
