package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/overlapd/overlapd/daemon/config"
)

// Limits on what is asked.
const (
	maxHeaderBytes = 8 << 10
	maxBodyBytes   = 4 << 10 // no request needs one

	headerTimeout = 5 * time.Second  // to read a header
	readTimeout   = 10 * time.Second // to read a request
	idleTimeout   = 30 * time.Second // between two requests
	lineTimeout   = 10 * time.Second // to write a line, or an answer
	closeTimeout  = 2 * time.Second  // to answer what was asked, at the end
)

// line is one line of the answer to POST /reload. One of the fields is set; the
// last line has no step.
type line struct {
	Step     *config.Step     `json:"step,omitempty"`
	Reloaded *config.Reloaded `json:"reloaded,omitempty"`
	Error    *Error           `json:"error,omitempty"`
}

// Options is where a daemon is administered, and by whom: the path of the socket,
// and the name or number of a group whose members may use it, "" for none.
type Options struct {
	Path    string
	Group   string
	Reloads *Reloads

	// Refused is called for each connection of somebody who may not.
	Refused func(Peer)

	credentials func(*net.UnixConn) (Peer, error) // nil for the kernel's
}

// Server answers at an admin socket.
type Server struct {
	opts     Options
	listener *listener
	http     *http.Server
	ended    chan struct{} // closed when nothing is accepted any more
}

// Listen makes the socket. Nothing is answered before Serve.
func Listen(o Options) (*Server, error) {
	group, err := findGroup(o.Group)
	if err != nil {
		return nil, err
	}
	at, err := listen(o.Path, group)
	if err != nil {
		return nil, fmt.Errorf("admin socket: %w", err)
	}
	if o.credentials == nil {
		o.credentials = credentials
	}
	s := &Server{opts: o, listener: newListener(at, ownRule(group), o.credentials), ended: make(chan struct{})}
	s.http = &http.Server{
		Handler:           s.guard(s.routes()),
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       readTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ConnContext:       withConn,
	}
	return s, nil
}

// Path returns where it listens.
func (s *Server) Path() string { return s.opts.Path }

// Serve answers until Close.
func (s *Server) Serve() error {
	defer close(s.ended)
	if err := s.http.Serve(s.listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// Close answers what was asked, for a moment, and removes the socket. Serve
// must have been called.
func (s *Server) Close() error {
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

func (s *Server) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /reload", s.reload)
	mux.HandleFunc("GET /reload", s.lastReload)
	mux.HandleFunc("POST /services/{name}/restart", s.restart)
	mux.HandleFunc("GET /config", s.config)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		refuse(w, &Error{KindNotFound, fmt.Sprintf("there is no %s %.100q; there are POST and GET /reload, POST /services/NAME/restart and GET /config", r.Method, r.URL.Path)})
	})
	return mux
}

// guard answers those who may not ask, and bounds what the others may take.
func (s *Server) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		out := http.NewResponseController(w)
		if err := out.SetWriteDeadline(time.Now().Add(lineTimeout)); err != nil {
			return
		}
		c := connOf(r.Context())
		if c == nil || !c.allowed {
			w.Header().Set("Connection", "close")
			refuse(w, &Error{kindForbidden, s.listener.rule.sentence()})
			if c != nil && s.opts.Refused != nil {
				s.opts.Refused(c.peer)
			}
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, maxBodyBytes)
		next.ServeHTTP(w, r)
	})
}

func refuse(w http.ResponseWriter, e *Error) { answer(w, e.status(), line{Error: e}) }

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // who left needs no answer
}

// reload begins a reload and writes its progress. That the client leaves does not
// end it.
func (s *Server) reload(w http.ResponseWriter, r *http.Request) {
	run, err := s.opts.Reloads.Begin()
	if err != nil {
		refuse(w, told(err))
		return
	}
	lines := &lineWriter{to: w}
	shown := map[string]config.Step{}
	for {
		now, grown := run.Report()
		for _, step := range now.Steps {
			if shown[step.Service] != step {
				shown[step.Service] = step
				lines.write(line{Step: &step})
			}
		}
		if now.State != reportRunning {
			lines.write(line{Reloaded: now.Reloaded, Error: now.Error})
			return
		}
		select {
		case <-grown:
		case <-r.Context().Done():
			return
		}
	}
}

// lineWriter writes JSON lines, each at once. The status is that of the first:
// an error that comes before anything was done has its own.
type lineWriter struct {
	to    http.ResponseWriter
	begun bool
}

func (l *lineWriter) write(what line) {
	if !l.begun {
		l.begun = true
		status := http.StatusOK
		if what.Error != nil {
			status = what.Error.status()
		}
		l.to.Header().Set("Content-Type", "application/x-ndjson")
		l.to.WriteHeader(status)
	}
	out := http.NewResponseController(l.to)
	_ = out.SetWriteDeadline(time.Now().Add(lineTimeout)) // who left needs no answer
	_ = json.NewEncoder(l.to).Encode(what)
	_ = out.Flush()
}

func (s *Server) lastReload(w http.ResponseWriter, _ *http.Request) {
	now, _ := s.opts.Reloads.Last().Report()
	answer(w, http.StatusOK, now)
}

func (s *Server) restart(w http.ResponseWriter, r *http.Request) {
	if err := s.opts.Reloads.host.Restart(r.PathValue("name")); err != nil {
		refuse(w, told(err))
		return
	}
	answer(w, http.StatusOK, line{})
}

func (s *Server) config(w http.ResponseWriter, _ *http.Request) {
	file, err := s.opts.Reloads.host.Config()
	if err != nil {
		refuse(w, told(err))
		return
	}
	w.Header().Set("Content-Type", "application/toml")
	_, _ = w.Write(file) // who left needs no answer
}
