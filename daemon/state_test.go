package daemon

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"github.com/overlapd/overlapd/daemon/loop"
	"github.com/overlapd/overlapd/daemon/statefile"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/predictor"
	"github.com/overlapd/overlapd/training"
)

func testProfile(cells int) predictor.Snapshot {
	p := predictor.Snapshot{Operators: 3}
	p.Cells = slices.Grow(p.Cells, cells)[:cells]
	for i := range p.Cells {
		c := &p.Cells[i]
		c.Size, c.Observations, c.Nanos = i+1, 5, []float64{1000, 2000, 3000.5}
	}
	return p
}

func openTestState(t *testing.T, dir string) *State {
	t.Helper()
	s, aside, err := openState(dir, checkState)
	if err != nil || aside != "" {
		t.Fatalf("opened with %v, set aside %q", err, aside)
	}
	return s
}

func closeState(t *testing.T, s *State) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

func TestProfilesOutliveTheDaemon(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "made", "for", "it")
	const key = "a processor|abc"
	want := testProfile(2)
	s := openTestState(t, dir)
	if ok, err := s.load(loop.SoloProfiles, key, new(predictor.Snapshot)); ok || err != nil {
		t.Errorf("an empty file has a profile (%t, %v)", ok, err)
	}
	if err := s.save(loop.SoloProfiles, key, want); err != nil {
		t.Fatal(err)
	}
	closeState(t, s)

	s = openTestState(t, dir)
	defer closeState(t, s)
	var got predictor.Snapshot
	ok, err := s.load(loop.SoloProfiles, key, &got)
	if !ok || err != nil {
		t.Fatalf("the profile is gone: %t, %v", ok, err)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("the profile changed:\n%s", d)
	}
}

func TestProfileThatIsNoProfile(t *testing.T) {
	s := openTestState(t, t.TempDir())
	defer closeState(t, s)
	err := s.db.Update(func(tx *bbolt.Tx) error {
		return tx.Bucket([]byte(loop.SoloProfiles)).Put([]byte("key"), []byte(`"x"`))
	})
	if err != nil {
		t.Fatal(err)
	}
	if ok, err := s.load(loop.SoloProfiles, "key", new(predictor.Snapshot)); ok || err == nil {
		t.Errorf("got %t, %v", ok, err)
	}
}

func TestOpenState(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "made")
	if _, err := OpenState(dir, true, checkState); !errors.Is(err, ErrNoState) || !strings.Contains(err.Error(), dir) {
		t.Errorf("a folder without a state file: %v", err)
	}
	s, err := OpenState(dir, false, checkState)
	if err != nil {
		t.Fatal(err)
	}
	d := &training.Dataset{Device: "d", Models: []training.Model{{Name: "m", Operators: 3}},
		Rows: []training.Row{{Group: models.Group{Spans: []models.Span{{End: 3, Size: 1}}}, Median: 1, Mean: 1}}}
	if err := s.Datasets().Append(d); err != nil {
		t.Error(err)
	}
	if _, err := OpenState(dir, true, checkState); !errors.Is(err, statefile.ErrInUse) {
		t.Errorf("a file in use: %v", err)
	}
	temporary := t.TempDir()
	t.Setenv("TMPDIR", temporary)
	copied, err := ReadState(dir, checkState)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := copied.Datasets().Dataset("d", nil); err != nil || len(got.Rows) != 1 {
		t.Errorf("the copy of a file in use has %+v, %v", got, err)
	}
	closeState(t, copied)
	if left := listDir(t, temporary); len(left) != 0 {
		t.Errorf("of the copy is left %v", left)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}

	daemon := openTestState(t, dir)
	if got, err := daemon.datasets.Dataset("d", nil); err != nil || len(got.Rows) != 1 {
		t.Errorf("the daemon finds %+v, %v", got, err)
	}
	closeState(t, daemon)
}

// A command leaves it to the daemon to set a file aside.
func TestOpenDamagedState(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, stateName)
	writeFile(t, path, "no database")
	if _, err := OpenState(dir, false, checkState); !errors.Is(err, statefile.ErrDamaged) {
		t.Errorf("got %v", err)
	}
	if left := listDir(t, dir); len(left) != 1 || left[0] != stateName {
		t.Errorf("the folder has %v", left)
	}
}

// A file that cannot be had is not a damaged one.
func TestStateThatCannotBeOpenedStays(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, stateName), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, aside, err := openState(dir, checkState); err == nil || errors.Is(err, statefile.ErrDamaged) || aside != "" {
		t.Errorf("got %v, set aside %q", err, aside)
	}
	if left := listDir(t, dir); len(left) != 1 {
		t.Errorf("something was set aside: %v", left)
	}
	file := filepath.Join(dir, "file")
	writeFile(t, file, "")
	if _, _, err := openState(filepath.Join(file, "state"), checkState); err == nil || !strings.Contains(err.Error(), "state_dir") {
		t.Errorf("a folder that cannot be made: %v", err)
	}
}

func listDir(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// wholeState is a state file with many pages. It is made once: every transaction waits
// for the disk.
var wholeState []byte

// makeWholeState makes it, for tests not to write to.
func makeWholeState(t *testing.T) []byte {
	t.Helper()
	if wholeState != nil {
		return wholeState
	}
	dir := t.TempDir()
	s := openTestState(t, dir)
	for i := range 200 {
		if err := s.save(loop.SoloProfiles, fmt.Sprint(i), testProfile(20)); err != nil {
			t.Fatal(err)
		}
	}
	closeState(t, s)
	var err error
	if wholeState, err = os.ReadFile(filepath.Join(dir, stateName)); err != nil {
		t.Fatal(err)
	}
	return wholeState
}

// openDamaged opens a state file with this content. It must be opened as it
// is, or set aside unchanged.
func openDamaged(t *testing.T, data []byte) (aside bool) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, stateName), data, 0o600); err != nil {
		t.Fatal(err)
	}
	s, name, err := openState(dir, checkState)
	if err != nil {
		t.Fatal(err)
	}
	defer closeState(t, s)
	if err := s.save(loop.SoloProfiles, "key", testProfile(1)); err != nil {
		t.Errorf("the new file cannot be written: %v", err)
	}
	if name == "" {
		return false
	}
	kept, err := os.ReadFile(name)
	if err != nil || !bytes.Equal(kept, data) {
		t.Errorf("the damaged file is not kept as it was: %v", err)
	}
	return true
}

// A disk that damages each file is not filled by them: the newest are kept.
func TestDamagedStateFilesAreFew(t *testing.T) {
	dir := t.TempDir()
	var names []string
	for range keptAside + 2 {
		writeFile(t, filepath.Join(dir, stateName), "no database")
		s, name, err := openState(dir, checkState)
		if err != nil || !s.aside {
			t.Fatalf("%v, or it says nothing", err)
		}
		closeState(t, s)
		names = append(names, name)
	}
	kept, _ := filepath.Glob(filepath.Join(dir, "*.damaged-*"))
	if want := names[len(names)-keptAside:]; !slices.Equal(kept, want) {
		t.Errorf("kept %v, want %v", kept, want)
	}
}

func TestDamagedStateIsSetAside(t *testing.T) {
	whole := makeWholeState(t)
	page := os.Getpagesize()
	garbage := bytes.Repeat([]byte("garbage "), 4096)
	scribbled := bytes.Clone(whole)
	for i := 4 * page; i+8 < len(scribbled); i += page {
		copy(scribbled[i+8:], garbage[:64])
	}
	for name, data := range map[string][]byte{
		"four bytes":         []byte("ONNX"),
		"half of a page":     whole[:page/2],
		"meta pages only":    whole[:2*page],
		"zeros":              make([]byte, len(whole)),
		"scribbled pages":    scribbled,
		"no values any more": bytes.ReplaceAll(whole, []byte(`{"operators"`), []byte(`{{{{{{{{{{{{`)),
	} {
		t.Run(name, func(t *testing.T) {
			if !openDamaged(t, data) {
				t.Error("it was taken as it is")
			}
		})
	}
}

// What was stored of calibrations is there whole after a store that fails, the old or the new.
func TestCalibrationsAreStoredWhole(t *testing.T) {
	s := openTestState(t, t.TempDir())
	defer closeState(t, s)
	of := func(keys ...string) map[string]predictor.CalibrationSnapshot {
		all := map[string]predictor.CalibrationSnapshot{}
		for _, key := range keys {
			all[key] = predictor.CalibrationSnapshot{Predictor: key}
		}
		return all
	}
	stored := func() string {
		now := map[string]predictor.CalibrationSnapshot{}
		if err := eachStored(s, loop.Calibrations, nil, now); err != nil {
			t.Error(err)
		}
		return strings.Join(slices.Sorted(maps.Keys(now)), " ")
	}
	if err := s.saveCalibrations(of("a", "b")); err != nil || stored() != "a b" {
		t.Errorf("%v, there are %s", err, stored())
	}
	next := of("b", "c")
	next[strings.Repeat("x", bbolt.MaxKeySize+1)] = predictor.CalibrationSnapshot{}
	if err := s.saveCalibrations(next); !errors.Is(err, berrors.ErrKeyTooLarge) || stored() != "a b" {
		t.Errorf("%v, there are %s", err, stored())
	}
	delete(next, strings.Repeat("x", bbolt.MaxKeySize+1))
	if err := s.saveCalibrations(next); err != nil || stored() != "b c" {
		t.Errorf("%v, there are %s", err, stored())
	}
}
