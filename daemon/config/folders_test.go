package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

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
		if config.StateDir != c.wantState || config.CacheDir() != c.wantCache {
			t.Errorf("%+v: got %s and %s", c, config.StateDir, config.CacheDir())
		}
	}
}

// Folders in which others can put files are told of, when the daemon starts and
// by overlapd check.
func TestOpenFolders(t *testing.T) {
	const stranger = 12345
	for name, c := range map[string]struct {
		mode  os.FileMode
		owner int // -1 for us
		want  []string
	}{
		"ours":             {0o700, -1, nil},
		"open to a group":  {0o770, -1, nil},
		"open to all":      {0o777, -1, []string{"chmod o-w"}},
		"sticky":           {0o777 | os.ModeSticky, -1, []string{"chmod o-w"}}, // they can still put files there
		"a stranger's":     {0o700, stranger, []string{"belongs to user 12345"}},
		"and open to all":  {0o777, stranger, []string{"chmod o-w", "belongs to user 12345"}},
		"that is not made": {0, -1, nil},
	} {
		t.Setenv("CACHE_DIRECTORY", "")
		config := Default()
		config.StateDir = filepath.Join(t.TempDir(), "state")
		if c.mode != 0 {
			if err := os.Mkdir(config.StateDir, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(config.StateDir, c.mode); err != nil {
				t.Fatal(err)
			}
		}
		if c.owner >= 0 && os.Chown(config.StateDir, c.owner, -1) != nil {
			continue // only root gives folders away
		}
		got := config.OpenFolders(os.Geteuid())
		if len(got) != len(c.want) {
			t.Errorf("%s: %q", name, got)
			continue
		}
		for i := range got {
			if !strings.Contains(got[i], c.want[i]) || !strings.Contains(got[i], config.StateDir) {
				t.Errorf("%s: %q, want %q", name, got[i], c.want[i])
			}
		}
		t.Setenv("CACHE_DIRECTORY", config.StateDir)
		config.StateDir = t.TempDir()
		if got := config.OpenFolders(os.Geteuid()); len(got) != len(c.want) {
			t.Errorf("%s, as a cache: %q", name, got)
		}
	}
}
