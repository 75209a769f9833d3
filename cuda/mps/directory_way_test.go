package mps

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// stranger is a user that is not us.
const stranger = 12345

// A directory of ours is of no use below a folder where another user may put
// his own in its place.
func TestWayToDirectory(t *testing.T) {
	for name, c := range map[string]struct {
		prepare func(above string) error
		want    string // "" if it is taken
	}{
		"ours":                {func(string) error { return nil }, ""},
		"open to a group":     {func(above string) error { return os.Chmod(above, 0o770) }, ""},
		"open to all":         {func(above string) error { return os.Chmod(above, 0o777) }, "chmod o-w"},
		"open to all, sticky": {func(above string) error { return os.Chmod(above, 0o777|os.ModeSticky) }, ""},
		"of a stranger":       {func(above string) error { return os.Chown(above, stranger, stranger) }, "another user"},
		"of one, sticky": {func(above string) error {
			return errors.Join(os.Chown(above, stranger, stranger), os.Chmod(above, 0o777|os.ModeSticky))
		}, "another user"},
		"a link of a stranger": {func(above string) error { return link(above, stranger) }, "another user"},
		"a link of ours":       {func(above string) error { return link(above, os.Geteuid()) }, ""},
		"a link to an open one": {func(above string) error {
			return errors.Join(link(above, os.Geteuid()), os.Chmod(filepath.Dir(above)+"/elsewhere", 0o777))
		}, "chmod o-w"},
	} {
		t.Run(name, func(t *testing.T) {
			above := filepath.Join(t.TempDir(), "above")
			if err := os.Mkdir(above, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := c.prepare(above); errors.Is(err, os.ErrPermission) {
				t.Skip("only root gives folders away")
			} else if err != nil {
				t.Fatal(err)
			}
			d, err := openDirectory(filepath.Join(above, "mps", "GPU-0"))
			if err == nil {
				err = d.close()
			}
			switch {
			case c.want == "" && err != nil:
				t.Error(err)
			case c.want != "" && (!errors.Is(err, ErrDirectory) || !strings.Contains(err.Error(), c.want)):
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

// link puts a link of a user's to another folder in the place of one.
func link(path string, user int) error {
	to := filepath.Join(filepath.Dir(path), "elsewhere")
	return errors.Join(os.Remove(path), os.Mkdir(to, 0o700), os.Symlink(to, path), os.Lchown(path, user, -1))
}

// A control daemon of a stranger is not joined, also if it answers.
func TestExistingOfAStranger(t *testing.T) {
	path := t.TempDir()
	if err := checkExisting(filepath.Join(path, "absent")); err != nil {
		t.Errorf("none: %v", err)
	}
	for user, want := range map[int]bool{os.Geteuid(): true, 0: true, unmapped: true, stranger: false} {
		if err := os.Chown(path, user, -1); err != nil {
			continue // only root gives folders away
		}
		err := checkExisting(path)
		if (err == nil) != want || err != nil && (!errors.Is(err, ErrDirectory) || !strings.Contains(err.Error(), path)) {
			t.Errorf("of user %d: %v", user, err)
		}
		if want {
			continue
		}
		if _, err := Existing(t.Context(), Options{Program: os.Args[0], Directory: path}); !errors.Is(err, ErrDirectory) {
			t.Errorf("of user %d, attached to: %v", user, err)
		}
	}
}

// TestCheckDirectory: a directory is judged before anybody makes it, and is not made.
func TestCheckDirectory(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := errors.Join(os.WriteFile(file, nil, 0o600), os.Mkdir(filepath.Join(dir, "all"), 0o700), os.Chmod(filepath.Join(dir, "all"), 0o777)); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		dir:                            "",
		filepath.Join(dir, "a", "b"):   "",
		filepath.Join(file, "a"):       "cannot be made in",
		file:                           "not a directory",
		filepath.Join(dir, "all"):      "others may write",
		filepath.Join(dir, "all", "a"): "everybody may rename",
		"/" + strings.Repeat("x", 90):  "bytes shorter",
	} {
		err := CheckDirectory(path)
		if (err == nil) != (want == "") || err != nil && (!errors.Is(err, ErrDirectory) || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: got %v, want %q", path, err, want)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "a")); err == nil {
		t.Error("it was made")
	}
}
