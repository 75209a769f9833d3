package ort

import "testing"

func TestSharedArena(t *testing.T) {
	for name, asRequested := range map[string]bool{"doubling": false, "as requested": true} {
		t.Run(name, func(t *testing.T) {
			e := openArena(t, asRequested, 1<<30)
			const bytes = 1 << 20
			x, _ := floats(t, e, []int64{bytes / 4})
			for range 2 {
				s := newSession(t, e, add())
				results, err := s.Run([]*Value{x, x}, nil)
				if err != nil {
					t.Fatal(err)
				}
				during := arenaStats(t, s)
				if during["InUse"] < bytes || during["TotalAllocated"] < during["InUse"] {
					t.Errorf("a tensor of %d bytes is not in %+v", bytes, during)
				}
				_ = results[0].Close()
				after := arenaStats(t, s)
				if after["InUse"]+bytes > during["InUse"] || after["MaxInUse"] < bytes {
					t.Errorf("%d bytes were not given back: %+v, then %+v", bytes, during, after)
				}
				if after["NumArenaExtensions"] != 1 {
					t.Errorf("the sessions did not share memory: %+v", after)
				}
			}
		})
	}
}

// openArena returns an Env with an arena as a GPU's are made.
func openArena(t *testing.T, asRequested bool, limitBytes uint64) *Env {
	t.Helper()
	return envWith(t, func(l *Library) (*Env, error) {
		return l.newEnv(EnvOptions{IntraThreads: 1, LogLevel: LogFatal}, asRequested, limitBytes)
	})
}

func arenaStats(t *testing.T, s *Session) map[string]uint64 {
	t.Helper()
	stats, err := s.arenaStats()
	if err != nil {
		t.Fatal(err)
	}
	return stats
}

func TestArenaLimit(t *testing.T) {
	e := openArena(t, true, 1<<16)
	x, _ := floats(t, e, []int64{1 << 20})
	s := newSession(t, e, add())
	if _, err := s.Run([]*Value{x, x}, nil); err == nil {
		t.Errorf("the arena went past its limit: %+v", arenaStats(t, s))
	}
}
