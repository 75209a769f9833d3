package serving

import (
	"bytes"
	"encoding/json"
	"errors"
	liblog "log"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/grpclog"

	"github.com/overlapd/overlapd/daemon/config"
)

// What clients and models say makes no second line of the log and does nothing to a
// terminal, in either format.
func TestLogLinesAreNotForged(t *testing.T) {
	defer zerolog.SetGlobalLevel(zerolog.GlobalLevel())
	const forged = "x\n{\"level\":\"info\",\"message\":\"forged\"}\r\n12:00:00 INF forged\x1b[2J\x1b]0;t\a"
	for _, format := range []string{"json", "console"} {
		c := config.Default()
		c.LogFormat, c.LogLevel = format, "debug"
		var out bytes.Buffer
		log := NewLogger(c, &out)
		log.Warn().Str("id", forged).Strs("names", []string{forged}).Err(errors.New(forged)).Bytes("stderr", []byte(forged)).Msg("a worker is lost")
		text := out.String()
		if strings.Count(text, "\n") != 1 || !strings.HasSuffix(text, "\n") || strings.ContainsAny(text, "\x1b\r\a") {
			t.Errorf("%s: wrote %q", format, text)
		}
		if format == "json" {
			var line struct{ ID, Message string }
			if err := json.Unmarshal(out.Bytes(), &line); err != nil || line.ID != forged || line.Message != "a worker is lost" {
				t.Errorf("read %+v, got %v", line, err)
			}
		}
	}
}

// Durations in the log have a unit, and a log that is no terminal has no colours.
func TestLogIsReadable(t *testing.T) {
	defer zerolog.SetGlobalLevel(zerolog.GlobalLevel())
	for format, want := range map[string]string{"json": `"took":"1.25s"`, "console": " took=1.25s\n"} {
		c := config.Default()
		c.LogFormat = format
		var out bytes.Buffer
		log := NewLogger(c, &out)
		log.Warn().Dur("took", 1250*time.Millisecond).Msg("ready")
		if !strings.Contains(out.String(), want) || strings.Contains(out.String(), "\x1b") {
			t.Errorf("%s: wrote %q", format, out.String())
		}
	}
}

// Standard error whose reader has gone gives an error, not the end of the
// program. The test's own is put aside for it: the rule holds for descriptors 1
// and 2 only.
func TestOutliveLog(t *testing.T) {
	defer outliveLog()()
	fd := int(os.Stderr.Fd()) // that of standard output under go test -json
	keep, err := unix.Dup(fd)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(keep)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	r.Close()
	if err := unix.Dup3(int(w.Fd()), fd, 0); err != nil {
		t.Fatal(err)
	}
	var werr error
	for end := time.Now().Add(time.Second); werr == nil && time.Now().Before(end); {
		// A child that another test is just starting has the reader until it runs.
		_, werr = os.Stderr.WriteString("nobody reads this\n")
	}
	if err := unix.Dup3(keep, fd, 0); err != nil {
		t.Fatal(err)
	}
	if !errors.Is(werr, unix.EPIPE) {
		t.Errorf("got %v", werr)
	}
}

// What net/http and gRPC write becomes lines of the log, and floods are cut short.
func TestAdoptLines(t *testing.T) {
	var out bytes.Buffer
	release := adoptLines(zerolog.New(&out))
	liblog.Printf("http: TLS handshake error from %s", "127.0.0.1")
	grpclog.Error("something broke")
	grpclog.Info("nothing of note")
	const flood = 1 << 14
	for range flood {
		liblog.Print("http: superfluous")
	}
	release()
	n := 0
	for line := range strings.Lines(out.String()) {
		n++
		var e struct{ Level, Line string }
		if err := json.Unmarshal([]byte(line), &e); err != nil || e.Level != "warn" || e.Line == "" {
			t.Fatalf("line %q: %v", line, err)
		}
	}
	text := out.String()
	if !strings.Contains(text, "TLS handshake error") || !strings.Contains(text, "something broke") || strings.Contains(text, "of note") || !strings.Contains(text, "were dropped") {
		t.Errorf("it begins with %.500s", text)
	}
	if n > flood/4 {
		t.Errorf("%d lines of %d came through", n, flood)
	}
}
