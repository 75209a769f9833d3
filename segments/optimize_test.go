package segments

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// What somebody else put into the cache is not run.
func TestKept(t *testing.T) {
	dir := t.TempDir()
	file := func(mode os.FileMode, text string) func(path string) error {
		return func(path string) error {
			return errors.Join(os.WriteFile(path, []byte(text), 0o600), os.Chmod(path, mode))
		}
	}
	const stranger = 12345
	for name, c := range map[string]struct {
		plant func(path string) error
		want  bool
	}{
		"nothing":             {func(string) error { return nil }, false},
		"made by us":          {file(0o600, "x"), true},
		"readable by all":     {file(0o644, "x"), true},
		"empty":               {file(0o600, ""), false},
		"writable by a group": {file(0o660, "x"), false},
		"writable by all":     {file(0o666, "x"), false},
		"a link": {func(path string) error {
			return errors.Join(file(0o600, "x")(path+".to"), os.Symlink(path+".to", path))
		}, false},
		"a folder":              {func(path string) error { return os.Mkdir(path, 0o700) }, false},
		"a stranger's":          {func(path string) error { return errors.Join(file(0o600, "x")(path), os.Chown(path, stranger, -1)) }, false},
		"a stranger's, for all": {func(path string) error { return errors.Join(file(0o644, "x")(path), os.Chown(path, stranger, -1)) }, false},
	} {
		path := filepath.Join(dir, name)
		if err := c.plant(path); errors.Is(err, os.ErrPermission) {
			continue // only root gives files away
		} else if err != nil {
			t.Fatal(err)
		}
		if got := kept(path); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
