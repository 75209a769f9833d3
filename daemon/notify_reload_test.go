package daemon

import (
	"context"
	"errors"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"
)

func TestReloadingIsTold(t *testing.T) {
	var told []string
	m := Manager{Tell: func(s string) error { told = append(told, s); return nil }}
	now := func() int64 {
		var ts unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
			t.Fatal(err)
		}
		return ts.Nano() / int64(time.Microsecond)
	}
	before := now()
	ended := m.Reloading()
	if len(told) != 1 {
		t.Fatalf("told %q", told)
	}
	parts := regexp.MustCompile(`^RELOADING=1\nMONOTONIC_USEC=(\d+)\nEXTEND_TIMEOUT_USEC=\d+$`).FindStringSubmatch(told[0])
	if parts == nil {
		t.Fatalf("told %q", told[0])
	}
	if at, err := strconv.ParseInt(parts[1], 10, 64); err != nil || at < before || at > now() {
		t.Errorf("the time %s is not between %d and %d", parts[1], before, now())
	}
	if err := ended(); err != nil || told[len(told)-1] != "READY=1" {
		t.Errorf("told %q, %v", told, err)
	}
}

func TestReloadingThatNobodyHears(t *testing.T) {
	deaf := errors.New("deaf")
	m := Manager{Tell: func(string) error { return deaf }}
	if err := m.Reloading()(); !errors.Is(err, deaf) {
		t.Errorf("got %v", err)
	}
}

// A daemon that ends as soon as it is told to stop tells that it stops.
func TestStoppingIsToldInAnyCase(t *testing.T) {
	for range 30 {
		b := newBackend(fakeConfig(1, nil), zerolog.Nop())
		u := &unit{backend: b, log: zerolog.Nop()}
		d := &Daemon{unit: u, units: []*unit{u}, face: b, log: zerolog.Nop()}
		stopping, stop := context.WithCancel(t.Context())
		ended, end := context.WithCancel(t.Context())
		var told string
		d.Report(stopping, ended, Manager{Tell: func(state string) error {
			told += state + "\n"
			stop()
			end()
			return nil
		}})
		if !strings.Contains(told, "STOPPING=1") {
			t.Fatalf("told %q", told)
		}
	}
}
