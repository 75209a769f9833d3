package daemon

import "testing"

func TestFolders(t *testing.T) {
	for _, c := range []struct{ state, cache, wantState, wantCache string }{
		{"", "", "/home/a/.local/state/overlapd", "/home/a/.local/state/overlapd"},
		{"/var/lib/overlapd/0", "", "/var/lib/overlapd/0", "/var/lib/overlapd/0"},
		{"/var/lib/overlapd/0", "/var/cache/overlapd/0", "/var/lib/overlapd/0", "/var/cache/overlapd/0"},
		{"/var/lib/a:/var/lib/b", "/var/cache/a:/var/cache/b", "/var/lib/a", "/var/cache/a"},
	} {
		t.Setenv("HOME", "/home/a")
		t.Setenv("XDG_STATE_HOME", "")
		t.Setenv("STATE_DIRECTORY", c.state)
		t.Setenv("CACHE_DIRECTORY", c.cache)
		config := Default()
		if config.StateDir != c.wantState || config.cacheDir() != c.wantCache {
			t.Errorf("%+v: got %s and %s", c, config.StateDir, config.cacheDir())
		}
	}
}
