package ort

import "testing"

func TestSharedArena(t *testing.T) {
	for name, arena := range map[string]ArenaOptions{
		"doubling":     {},
		"as requested": {ExtendAsRequested: true, LimitBytes: 1 << 30},
	} {
		t.Run(name, func(t *testing.T) {
			e := openEnv(t, EnvOptions{IntraThreads: 1, SharedArena: true, Arena: arena})
			const bytes = 1 << 20
			x, _ := floats(t, e, []int64{bytes / 4})
			for range 2 {
				s := newSession(t, e, add())
				results, err := s.Run(nil, []*Value{x, x}, nil)
				if err != nil {
					t.Fatal(err)
				}
				during := arenaStats(t, s)
				if during.InUseBytes < bytes || during.TotalBytes < during.InUseBytes {
					t.Errorf("a tensor of %d bytes is not in %+v", bytes, during)
				}
				_ = results[0].Close()
				after := arenaStats(t, s)
				if after.InUseBytes+bytes > during.InUseBytes || after.MaxInUseBytes < bytes {
					t.Errorf("%d bytes were not given back: %+v, then %+v", bytes, during, after)
				}
				if after.Extensions != 1 {
					t.Errorf("the sessions did not share memory: %+v", after)
				}
			}
		})
	}
}

func arenaStats(t *testing.T, s *Session) ArenaStats {
	t.Helper()
	stats, err := s.ArenaStats()
	if err != nil {
		t.Fatal(err)
	}
	return stats
}

func TestArenaLimit(t *testing.T) {
	e := openEnv(t, EnvOptions{IntraThreads: 1, SharedArena: true, Arena: ArenaOptions{
		ExtendAsRequested: true, LimitBytes: 1 << 16,
	}})
	x, _ := floats(t, e, []int64{1 << 20})
	s := newSession(t, e, add())
	if _, err := s.Run(nil, []*Value{x, x}, nil); err == nil {
		t.Errorf("the arena went past its limit: %+v", arenaStats(t, s))
	}
}

func TestOwnArena(t *testing.T) {
	e := openEnv(t, EnvOptions{IntraThreads: 1, SharedArena: true})
	shared := newSession(t, e, add())
	own := newSessionWith(t, e, add(), SessionOptions{OwnArena: true})
	x, _ := floats(t, e, []int64{1 << 16})
	results, err := own.Run(nil, []*Value{x, x}, nil)
	if err != nil {
		t.Fatal(err)
	}
	closeAfter(t, results[0])
	if used, other := arenaStats(t, own), arenaStats(t, shared); used.InUseBytes == 0 || other != (ArenaStats{}) {
		t.Errorf("its own arena: %+v, the shared one: %+v", used, other)
	}
}
