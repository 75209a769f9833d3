package load

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"time"
)

var (
	// errDaemon is returned when the daemon cannot be reached, or when its
	// answer violates the Open Inference Protocol.
	errDaemon = errors.New("load: daemon")

	// errService is returned when the daemon does not serve a service.
	errService = errors.New("load: service")
)

// Parameters of a model's metadata or configuration that the result repeats.
const (
	deviceParameter = "device"
	targetParameter = "qos_target_us"
)

// secureScheme is that of the URL of a daemon with TLS.
const secureScheme = "https"

// service is the metadata of a service, and the requests made of it.
type service struct {
	name     string
	device   string
	target   time.Duration // 0 if there is none
	requests []*request
}

// daemon is where a daemon is reached, and its metadata.
type daemon struct {
	addr     string
	tls      *tls.Config // nil for none
	server   string      // name and version
	services []*service
}

type metadata struct {
	Inputs []struct {
		Name     string  `json:"name"`
		Datatype string  `json:"datatype"`
		Shape    []int64 `json:"shape"`
	} `json:"inputs"`
	Parameters parameters `json:"parameters"`
}

// parameters are plain values, or objects with a string_value as in Triton.
type parameters map[string]json.RawMessage

func (p parameters) value(name string) string {
	var wrapped struct {
		Value string `json:"string_value"`
	}
	if json.Unmarshal(p[name], &wrapped) == nil {
		return wrapped.Value
	}
	var plain string
	if json.Unmarshal(p[name], &plain) == nil {
		return plain
	}
	return string(p[name])
}

// ask learns about the daemon and its services, and makes their requests.
func ask(ctx context.Context, o *Options) (*daemon, error) {
	u, err := url.Parse(o.URL)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errOptions, err)
	}
	d := &daemon{addr: u.Host}
	port := "80"
	if u.Scheme == secureScheme {
		port, d.tls = "443", cmp.Or(o.TLS, &tls.Config{}).Clone()
		d.tls.ServerName = u.Hostname()
	}
	if u.Port() == "" {
		d.addr = net.JoinHostPort(u.Hostname(), port)
	}
	c := newConn(ctx, d.addr, d.tls)
	defer c.close()

	var about struct{ Name, Version string }
	if err := get(c, o, u, serverPath, &about); err != nil {
		return nil, err
	}
	d.server = about.Name + " " + about.Version
	for i, name := range o.Services {
		s, err := askService(c, o, u, name, uint64(i))
		if err != nil {
			return nil, err
		}
		d.services = append(d.services, s)
	}
	return d, nil
}

func askService(c *conn, o *Options, u *url.URL, name string, stream uint64) (*service, error) {
	var m metadata
	if err := get(c, o, u, modelPath(name), &m); err != nil {
		return nil, fmt.Errorf("%w %q: %w", errService, name, err)
	}
	s := &service{name: name}
	s.learn(m.Parameters)
	var config struct {
		Parameters parameters `json:"parameters"`
	}
	// The configuration is an extension of the protocol; do without it.
	if get(c, o, u, modelPath(name)+"/config", &config) == nil {
		s.learn(config.Parameters)
	}
	if o.Target > 0 {
		s.target = o.Target
	}
	inputs := make([]tensor, len(m.Inputs))
	for i, in := range m.Inputs {
		t, err := newTensor(in.Name, in.Datatype, o.fill(in.Shape))
		if err != nil {
			return nil, fmt.Errorf("%w %q: %w", errService, name, err)
		}
		inputs[i] = t
	}
	var err error
	s.requests, err = newRequests(o, u, name, inputs, stream)
	return s, err
}

// fill replaces the dimensions of an input that are not fixed.
func (o *Options) fill(shape []int64) []int64 {
	full := make([]int64, len(shape))
	for i, d := range shape {
		switch {
		case d >= 0:
			full[i] = d
		case i == 0:
			full[i] = int64(o.Batch)
		default:
			full[i] = int64(o.SeqLen)
		}
	}
	return full
}

// learn keeps the parameters that are there.
func (s *service) learn(p parameters) {
	if device := p.value(deviceParameter); device != "" {
		s.device = device
	}
	if us, err := strconv.ParseInt(p.value(targetParameter), 10, 64); err == nil && us > 0 {
		s.target = time.Duration(us) * time.Microsecond
	}
}

// get asks for a JSON object.
func get(c *conn, o *Options, u *url.URL, path string, into any) error {
	if err := c.do(newWire(u, path, o.Authorization, nil, -1), time.Now().Add(o.Timeout)); err != nil {
		return fmt.Errorf("%w: GET %s%s: %w", errDaemon, u.Host, path, err)
	}
	if status := c.answer.StatusCode(); status != 200 {
		var e struct{ Error string }
		_ = json.Unmarshal(c.answer.Body(), &e) // an error without text is one too
		return fmt.Errorf("%w: GET %s%s: status %d: %s", errDaemon, u.Host, path, status, e.Error)
	}
	if err := json.Unmarshal(c.answer.Body(), into); err != nil {
		return fmt.Errorf("%w: GET %s%s: %w", errDaemon, u.Host, path, err)
	}
	return nil
}
