package rpc

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/overlapd/overlapd/daemon/access"
	"github.com/overlapd/overlapd/daemon/rpc/inference"
)

const (
	framePing   = 6
	frameWindow = 8

	cancelled = 8  // code of a reset
	calmDown  = 11 // code of ENHANCE_YOUR_CALM
)

// attacker is a client that writes frames by hand.
type attacker struct {
	net.Conn
	t    testing.TB
	next uint32 // stream
}

func attack(r *rig) *attacker {
	r.t.Helper()
	c, err := net.Dial("tcp", r.address)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(patience))
	a := &attacker{Conn: c, t: r.t, next: 1}
	a.send(append([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), frame(frameSettings, 0, 0, nil)...))
	return a
}

func (a *attacker) send(b []byte) error {
	_, err := a.Write(b)
	return err
}

// headers returns those of a call, and the stream that it is on.
func (a *attacker) headers(method string) (frames []byte, stream uint32) {
	stream, a.next = a.next, a.next+2
	fields := fieldsOf(":method", "POST", ":scheme", "http", ":path", method, ":authority", "localhost", "content-type", "application/grpc", "te", "trailers")
	return frame(frameHeaders, flagEndHeaders, stream, fields), stream
}

// Calls of which nothing but headers has come, or a few bytes of what they announce,
// leave memory to the calls of every other connection, over both protocols.
func TestSilentCallsLeaveRoomToOthers(t *testing.T) {
	const connections = 40
	announced := append([]byte{0}, 0, 0x10, 0, 0) // a message of 1 MiB
	for name, method := range map[string]string{
		"infer": inference.GRPCInferenceService_ModelInfer_FullMethodName, "stream": inference.GRPCInferenceService_ModelStreamInfer_FullMethodName,
		"probe": inference.GRPCInferenceService_ServerLive_FullMethodName, "metadata": inference.GRPCInferenceService_ServerMetadata_FullMethodName,
		"watch": grpc_health_v1.Health_Watch_FullMethodName,
	} {
		for begin, sent := range map[string][]byte{"headers": nil, "announced": announced} {
			t.Run(name+" "+begin, func(t *testing.T) {
				l := testLimits()
				l.MemoryBytes, l.Connections = 512<<20, 2*connections
				r := start(t, &fake{}, l)
				for range connections {
					a := attack(r)
					var all []byte
					for range maxStreams {
						frames, stream := a.headers(method)
						all = append(all, frames...)
						if sent != nil {
							all = append(all, frame(frameData, 0, stream, sent)...)
						}
					}
					if err := a.send(all); err != nil {
						t.Fatal(err)
					}
					open := make(chan struct{}) // the server has read it when it answers what comes behind
					go func() {
						defer close(open)
						for in := bufio.NewReader(a); ; {
							kind, _, err := readFrame(in)
							if err != nil || kind == framePing {
								return
							}
						}
					}()
					if err := a.send(frame(framePing, 0, 0, make([]byte, 8))); err != nil {
						t.Fatal(err)
					}
					<-open
				}
				if _, err := r.client.ModelInfer(r.context(), typedRequest("1")); err != nil {
					t.Errorf("a query of another connection: %v", err)
				}
				if _, err := r.client.ModelInfer(r.context(), rawRequest(600<<10)); err != nil {
					t.Errorf("a larger one: %v", err)
				}
				s := r.stream(r.context())
				send(t, s, typedRequest("2"))
				if _, err := s.Recv(); err != nil {
					t.Errorf("a stream of another connection: %v", err)
				}
				s.CloseSend()
				if err := r.call(r.context(), inference.GRPCInferenceService_ServerLive_FullMethodName); err != nil {
					t.Errorf("a probe of another connection: %v", err)
				}
				b, fault := r.server.queries.Memory.Room(1 << 20)
				if fault != nil {
					t.Fatalf("HTTP, meanwhile: %v", fault)
				}
				b.Release()
			})
		}
	}
}

func readFrame(r io.Reader) (kind byte, payload []byte, err error) {
	var head [9]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, nil, err
	}
	payload = make([]byte, int(head[0])<<16|int(head[1])<<8|int(head[2]))
	_, err = io.ReadFull(r, payload)
	return head[3], payload, err
}

// A client that keeps starting and resetting calls, or that has no token, receives
// ENHANCE_YOUR_CALM and loses its connection.
func TestRapidReset(t *testing.T) {
	for name, resets := range map[string]bool{"reset": true, "refused": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := startGuarded(t, &fake{}, testLimits(), guarded(t, access.Options{}), nil)
			a := attack(r)
			gone := make(chan struct{})
			go func() {
				defer close(gone)
				for range 1 << 20 {
					frames, stream := a.headers(inference.GRPCInferenceService_ModelInfer_FullMethodName)
					if resets {
						frames = append(frames, frame(frameReset, 0, stream, []byte{0, 0, 0, cancelled})...)
					}
					if a.send(frames) != nil {
						return
					}
				}
			}()
			told := false
			for in := bufio.NewReader(a); ; {
				kind, payload, err := readFrame(in)
				if errors.Is(err, io.EOF) || told {
					break
				}
				if errors.Is(err, syscall.ECONNRESET) {
					told = true // what it still sends resets the connection, and may take the last frame with it
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				told = kind == frameGoAway && binary.BigEndian.Uint32(payload[4:]) == calmDown
			}
			<-gone
			if !told {
				t.Error("it was not told to calm down")
			}
			if n := a.next / 2; n > 1<<17 {
				t.Errorf("it began %d calls", n)
			}
			if _, err := r.client.ModelInfer(with(r.context(), testToken), typedRequest("1")); err != nil {
				t.Errorf("another connection: %v", err)
			}
		})
	}
}

// A client that resets every other of its queries, as one that hedges does, is left alone.
func TestHedgingIsNoAttack(t *testing.T) {
	r := start(t, &fake{}, testLimits())
	a := attack(r)
	in := bufio.NewReader(a)
	if err := a.send(frame(frameWindow, 0, 0, []byte{0x40, 0, 0, 0})); err != nil { // room for all answers
		t.Fatal(err)
	}
	q := framed(0, encode(t, typedRequest("1")))
	for n := range 4 * mostFruitless {
		frames, stream := a.headers(inference.GRPCInferenceService_ModelInfer_FullMethodName)
		if n%2 == 0 {
			frames = append(frames, frame(frameReset, 0, stream, []byte{0, 0, 0, cancelled})...)
		} else {
			frames = append(frames, frame(frameData, flagEndStream, stream, q)...)
		}
		if err := a.send(frames); err != nil {
			t.Fatal(err)
		}
		for n%2 != 0 {
			kind, payload, err := readFrame(in)
			if err != nil || kind == frameGoAway {
				t.Fatalf("after %d calls: %v %q", n, err, payload)
			}
			if kind == frameData {
				break
			}
		}
	}
}
