package journal

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/overlap"
)

// Every file of a log that was rotated many times can be replayed by itself.
func TestRotatedFilesReplayByThemselves(t *testing.T) {
	for _, p := range overlap.Policies() {
		o := quick()
		o.MaxFileBytes, o.MaxFiles, o.FlushInterval = 4*fileBytes, 5, flushInterval
		dir := simulate(t, testConfig(p.Name, 4, 3), o, 3, 4000)
		logs := replayAll(t, dir)
		if len(logs) != o.MaxFiles {
			t.Fatalf("%d files", len(logs))
		}
		for n, l := range logs {
			f := files{dir: dir}
			text, err := os.ReadFile(f.path(n))
			if err != nil {
				t.Fatal(err)
			}
			if l.Rounds == 0 && n > 0 || l.Torn {
				t.Errorf("%s %d: %d rounds, torn is %v", p.Name, n, l.Rounds, l.Torn)
			}
			if records := len(text) - bytes.IndexByte(text, '\n'); records > 5*fileBytes {
				t.Errorf("%s %d: %d bytes of records", p.Name, n, records)
			}
		}
	}
}

func TestFilesArePrivate(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	w, err := Open(dir, quick())
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(filepath.Join(dir, FileName)); err != nil || info.Mode() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v", info, err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, FileName)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("an empty file stays: %v", err)
	}
}

// A log of before is kept as an older file; files of higher numbers than
// are kept now are removed, and nothing else is touched.
func TestOpenKeepsEarlierLogs(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"decisions.log": "a", "decisions.log.1": "b", "decisions.log.2": "c", "decisions.log.7": "d",
		"decisions.log.07": "other", "decisions.log.x": "other", "state.db": "other",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	o := quick()
	o.MaxFiles = 3
	w, err := Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	var got []string
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, e.Name()+"="+string(text))
	}
	want := "decisions.log.07=other decisions.log.1=a decisions.log.2=b decisions.log.x=other state.db=other"
	if s := strings.Join(got, " "); s != want {
		t.Errorf("got %s, want %s", s, want)
	}
}

// A log that cannot be begun says what to do, and keeps why.
func TestOpenRefusesAFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var fault *os.PathError
	if _, err := Open(path, quick()); !errors.As(err, &fault) || !strings.Contains(err.Error(), "decisions.log = false") {
		t.Errorf("got %v", err)
	}
}

// disk is a file system with a limit.
type disk struct {
	mu   sync.Mutex
	left int           // bytes
	hold chan struct{} // writes wait until it is closed, if it is not nil
}

type diskFile struct {
	*os.File
	d *disk
}

func (d *disk) create(path string) (file, error) {
	f, err := createFile(path)
	if err != nil {
		return nil, err
	}
	return &diskFile{f.(*os.File), d}, nil
}

func (d *disk) free(n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.left = n
}

func (f *diskFile) Write(b []byte) (int, error) {
	f.d.mu.Lock()
	hold := f.d.hold
	n := min(len(b), f.d.left)
	f.d.left -= n
	f.d.mu.Unlock()
	if hold != nil {
		<-hold
	}
	written, err := f.File.Write(b[:n])
	if err == nil && n < len(b) {
		err = unix.ENOSPC
	}
	return written, err
}

// A full disk stops the log, says so once, and disturbs nobody. When there is
// room again the log goes on behind a gap.
func TestFullDisk(t *testing.T) {
	for _, left := range []int{0, 100, 5000, 20000} {
		t.Run(fmt.Sprint(left), func(t *testing.T) {
			var stopped, resumed atomic.Int64
			o := quick()
			o.FlushInterval, o.RetryInterval = flushInterval, flushInterval
			o.Stopped = func(err error) {
				if !errors.Is(err, unix.ENOSPC) {
					t.Errorf("stopped by %v", err)
				}
				stopped.Add(1)
			}
			o.Resumed = func(lost uint64) { resumed.Add(int64(lost)) }
			d := &disk{left: left}
			c := testConfig("overlap", 3, 1)
			s, w, dir := begin(t, c, o, d.create)
			run := newWorld(s, c, 1)
			until := func(done func() bool) {
				for !done() {
					run.step(t)
					time.Sleep(10 * time.Microsecond)
				}
			}
			until(func() bool { return stopped.Load() > 0 })
			// A record counts as lost once the writer has tried to write it.
			until(func() bool { lost, _ := w.Lost(); return lost >= 1000 })
			if _, fault := w.Lost(); !errors.Is(fault, unix.ENOSPC) {
				t.Errorf("while the disk is full: %v", fault)
			}
			d.free(1 << 30)
			until(func() bool { return resumed.Load() > 0 })
			if lost, fault := w.Lost(); lost != uint64(resumed.Load()) || fault != nil {
				t.Errorf("afterwards: %d lost of %d, %v", lost, resumed.Load(), fault)
			}
			for range 200 {
				run.step(t)
			}
			if err := w.Close(); err != nil {
				t.Error(err)
			}
			if stopped.Load() != 1 {
				t.Errorf("said %d times that it stopped", stopped.Load())
			}
			logs := replayAll(t, dir)
			if l := logs[0]; l.Lost < 1000 || l.Torn || !strings.Contains(l.Why, "no space left") {
				t.Errorf("%d records lost, torn is %v: %s", l.Lost, l.Torn, l.Why)
			}
			if run.answers == 0 {
				t.Error("nothing was answered")
			}
		})
	}
}

// What a full disk still took is read, and does not count as lost.
func TestFullDiskTakesTheFirstRecords(t *testing.T) {
	d, o := &disk{left: 1 << 30}, quick()
	o.RetryInterval = 0
	s, w, dir := begin(t, testConfig("edf", 1, 1), o, d.create)
	drain := func(times int) {
		for range times {
			_ = s.Step(0, &overlap.Event{Kind: overlap.Drain})
		}
		w.flush() // its own goroutine sleeps
	}
	drain(10)
	d.free(3*len(`{"e":"drain","t":0}`+"\n") + 5)
	drain(10)
	d.free(1 << 30)
	drain(1)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	logs := replayAll(t, dir)
	if len(logs) != 2 || logs[0].Records != 1 || logs[0].Lost != 7 || logs[1].Records != 13 || !logs[1].Torn {
		t.Errorf("%+v", logs)
	}
}

// A disk that stays full is reported by Close.
func TestCloseReportsTheDisk(t *testing.T) {
	s, w, _ := begin(t, testConfig("edf", 1, 1), quick(), (&disk{}).create)
	_ = s.Step(0, &overlap.Event{Kind: overlap.Drain})
	if err := w.Close(); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("got %v", err)
	}
	if err := w.Close(); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("again: got %v", err)
	}
}

// A disk that is too slow costs records and nothing else, and the log says how
// many.
func TestSlowDisk(t *testing.T) {
	d := &disk{left: 1 << 30, hold: make(chan struct{})}
	s, w, dir := begin(t, testConfig("edf", 1, 1), quick(), d.create)
	events := uint64(0)
	event := func() {
		events++
		_ = s.Step(0, &overlap.Event{Kind: overlap.Arrive, Query: models.Query{ID: 1, Service: 9, Shape: 1 << 63}})
	}
	for range 2 * pendingBytes / 80 {
		event() // nothing is read from the writer meanwhile
	}
	if lost, _ := w.Lost(); lost == 0 {
		t.Fatal("nothing was lost: a buffer without limit?")
	}
	close(d.hold)
	w.keepUp()
	lost, _ := w.Lost()
	event()
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	logs, records := replayAll(t, dir), uint64(0)
	for _, l := range logs {
		records += l.Records
	}
	if logs[0].Lost != lost || records != events-lost {
		t.Errorf("%d of %d events lost: %d files with %d records, the newest without %d", lost, events, len(logs), records, logs[0].Lost)
	}
}

// While the disk takes nothing, only so many files wait to begin, and the last one takes the rest.
func TestFewFilesWait(t *testing.T) {
	d, o, events := &disk{left: 1 << 30, hold: make(chan struct{})}, quick(), uint64(10*pendingFiles)
	o.MaxFileBytes, o.MaxFiles = 1, 100
	s, w, dir := begin(t, testConfig("edf", 1, 1), o, d.create)
	for range events {
		_ = s.Step(0, &overlap.Event{Kind: overlap.Drain})
	}
	if n := len(w.mu.pending); n > pendingFiles {
		t.Errorf("%d files wait", n)
	}
	close(d.hold)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	records := uint64(0)
	for _, l := range replayAll(t, dir) {
		records += l.Records
	}
	if records != events {
		t.Errorf("%d records of %d", records, events)
	}
}

// A record that JSON cannot hold counts as lost, and the log goes on behind it.
func TestRecordThatCannotBeWritten(t *testing.T) {
	s, w, dir := begin(t, testConfig("edf", 1, 1), quick(), createFile)
	for _, accuracy := range []float64{0, math.NaN(), 0} {
		_ = s.Step(0, &overlap.Event{Kind: overlap.Arrive, Query: models.Query{Service: 9, Accuracy: accuracy}})
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	logs := replayAll(t, dir)
	if len(logs) != 2 || logs[0].Lost != 1 || logs[0].Records != 1 || logs[1].Records != 1 {
		t.Errorf("%+v", logs)
	}
}

// What was recorded is in the file after the flush interval, also when nothing
// happens any more.
func TestFlush(t *testing.T) {
	o := quick()
	o.FlushInterval = flushInterval
	s, w, dir := begin(t, testConfig("edf", 1, 1), o, createFile)
	defer w.Close()
	_ = s.Step(0, &overlap.Event{Kind: overlap.Drain})
	for {
		text, err := os.ReadFile(filepath.Join(dir, FileName))
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // the first flush creates it
			t.Fatal(err)
		}
		if bytes.Contains(text, []byte(`{"e":"drain"`)) {
			return
		}
		time.Sleep(flushInterval)
	}
}

// A file that cannot be begun is tried again without losing older ones.
func TestRotationFailsWithoutLoss(t *testing.T) {
	dir := t.TempDir()
	broken := errors.New("broken")
	fails := true
	f := files{dir: dir, max: 3, create: func(path string) (file, error) {
		if fails {
			return nil, broken
		}
		return createFile(path)
	}}
	for _, name := range []string{FileName, FileName + ".1"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for range 5 {
		if err := f.rotate(); !errors.Is(err, broken) {
			t.Fatalf("got %v", err)
		}
	}
	fails = false
	for range 5 {
		if err := f.rotate(); err != nil {
			t.Fatal(err)
		}
		_ = f.current.Close() // a crash leaves an empty file
		f.current = nil
	}
	if err := f.close(); err != nil {
		t.Fatal(err)
	}
	for n, want := range map[int]string{1: FileName, 2: FileName + ".1"} {
		if text, err := os.ReadFile(f.path(n)); err != nil || string(text) != want {
			t.Errorf("file %d holds %q, %v", n, text, err)
		}
	}
}
