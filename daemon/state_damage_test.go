package daemon

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/overlapd/overlapd/daemon/loop"
	"github.com/overlapd/overlapd/daemon/statefile"
	"github.com/overlapd/overlapd/predictor"
)

// Damage that is done to the file while it is open is an error of whoever reads
// or writes next, and of nobody's process; the next daemon sets the file aside.
func TestStateDamagedWhileOpen(t *testing.T) {
	whole := makeWholeState(t)
	random := rand.New(rand.NewPCG(3, 4))
	lost := 0
	const rounds = 20
	for round := range rounds {
		dir := t.TempDir()
		path := filepath.Join(dir, stateName)
		if err := os.WriteFile(path, whole, 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := OpenState(dir, true, nil)
		if err != nil {
			t.Fatal(err)
		}
		damage(t, path, random)
		var users sync.WaitGroup
		for user := range 4 {
			users.Go(func() {
				for i := range 5 {
					s.save(loop.SoloProfiles, fmt.Sprintf("%d-%d", user, i), testProfile(200))
					s.load(loop.SoloProfiles, fmt.Sprintf("%d-%d", user, i), new(predictor.Snapshot))
					s.datasets.Predictors()
				}
			})
		}
		users.Wait()
		if err := s.save(loop.SoloProfiles, "key", testProfile(1)); errors.Is(err, statefile.ErrLost) {
			lost++
		} else if err != nil {
			t.Errorf("round %d: %v", round, err)
		}
		if err := s.Close(); err != nil {
			t.Errorf("round %d: closing: %v", round, err)
		}
		again, _, err := openState(dir, checkState) // its lock is free
		if err != nil {
			t.Fatalf("round %d: opening it again: %v", round, err)
		}
		closeState(t, again)
	}
	if lost == 0 || lost == rounds {
		t.Errorf("%d of %d files were lost; both should happen", lost, rounds)
	}
}

// damage cuts an open file or writes rubbish into it.
func damage(t *testing.T, path string, random *rand.Rand) {
	t.Helper()
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		t.Fatal(err)
	}
	if random.IntN(2) == 0 {
		err = file.Truncate(random.Int64N(info.Size()))
	}
	for range random.IntN(12) {
		if err == nil {
			_, err = file.WriteAt(fmt.Appendf(nil, "%x", random.Uint64()), random.Int64N(info.Size()))
		}
	}
	if err != nil {
		t.Fatal(err)
	}
}
