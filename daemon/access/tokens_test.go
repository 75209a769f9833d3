package access

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const (
	first  = "0123456789abcdef-first"
	second = "0123456789abcdef-second"
)

// write replaces a file and lets it look changed however coarse the clock is.
func write(t *testing.T, path, text string, mode os.FileMode) {
	t.Helper()
	next := path + ".next"
	if err := os.WriteFile(next, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(next, path); err != nil {
		t.Fatal(err)
	}
}

func tokenFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "tokens")
	write(t, path, text, 0o600)
	return path
}

// due makes the next use look at the files.
func (f *files[T]) due() { f.next.Store(0) }

func TestAllows(t *testing.T) {
	a := opened(t, Options{TokenFile: tokenFile(t, "# who: a test\n\n  "+first+"\r\n"+second)})
	for header, want := range map[string]bool{
		"Bearer " + first:                true,
		"bearer " + second:               true,
		"BEARER " + second:               true,
		"":                               false,
		first:                            false,
		"Bearer":                         false,
		"Bearer ":                        false,
		"Basic " + first:                 false,
		"Bearer  " + first:               false,
		"Bearer " + first + " ":          false,
		"Bearer " + first[:len(first)-1]: false,
		"Bearer " + first + second:       false,
		"Bearer # who: a test":           false,
		"Bearer " + strings.Repeat("a", maxTokenBytes*100): false,
	} {
		if got := a.Allows([]byte(header)); got != want {
			t.Errorf("%.60q: %t", header, got)
		}
	}
	if !a.Guarded() || len(a.Warnings()) != 0 || a.TLS() != nil {
		t.Errorf("guarded %t, warnings %q", a.Guarded(), a.Warnings())
	}
}

// Nobody is asked for anything where nothing is configured.
func TestNoAccess(t *testing.T) {
	a, err := Open(Options{MinVersion: "1.3"})
	if a != nil || err != nil || a.Guarded() || !a.Allows(nil) || a.TLS("h2") != nil || a.Reload() != nil || a.Warnings() != nil {
		t.Errorf("%v, %v", a, err)
	}
}

func TestTokensRefused(t *testing.T) {
	const secret = "correct horse battery staple"
	for name, c := range map[string]struct{ text, want string }{
		"empty":          {"", "no token"},
		"comments":       {"# " + secret + "\n\n", "no token"},
		"short":          {first + "\nshort-secret", "line 2"},
		"blanks":         {secret, "line 1"},
		"not ASCII":      {"0123456789abcdefü", "line 1"},
		"too long":       {strings.Repeat("a", maxTokenBytes+1), "512"},
		"too many":       {strings.Repeat(first+"\n", maxTokens+1), "more than 64"},
		"too much":       {strings.Repeat("#\n", maxTokenFileBytes), "more than 65536 bytes"},
		"null bytes":     {"0123456789abcdef\x00", "line 1"},
		"header, folded": {"0123456789abcdef\rX: y", "line 1"},
	} {
		_, err := Open(Options{TokenFile: tokenFile(t, c.text)})
		if !errors.Is(err, ErrTokens) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
		for _, part := range []string{secret, "secret", "staple"} {
			if err != nil && strings.Contains(err.Error(), part) {
				t.Errorf("%s: the error tells the token: %v", name, err)
			}
		}
	}
	for name, path := range map[string]string{"missing": filepath.Join(t.TempDir(), "none"), "a folder": t.TempDir(), "a device": os.DevNull} {
		if _, err := Open(Options{TokenFile: path}); !errors.Is(err, ErrTokens) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A changed file is taken into use without being told, and a wrong one is not.
func TestTokensFollowed(t *testing.T) {
	var told []error
	path := tokenFile(t, first)
	a := opened(t, Options{TokenFile: path, Changed: func(err error) { told = append(told, err) }})
	allows := func(token string) bool {
		a.tokens.due()
		return a.Allows([]byte("Bearer " + token))
	}
	for _, step := range []struct {
		text          string
		first, second bool
		told          int
		wrong         bool
	}{
		{first, true, false, 1, false}, // the file is another one
		{second, false, true, 2, false},
		{first + "\n" + second, true, true, 3, false},
		{"", true, true, 4, true},
		{second, false, true, 5, false},
	} {
		write(t, path, step.text, 0o600)
		if allows(first) != step.first || allows(second) != step.second {
			t.Errorf("%q: first %t, second %t", step.text, allows(first), allows(second))
		}
		if len(told) != step.told || (told[len(told)-1] != nil) != step.wrong {
			t.Errorf("%q: told %v", step.text, told)
		}
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if !allows(second) || len(told) != 6 || !errors.Is(told[5], ErrTokens) {
		t.Errorf("without the file: told %v", told)
	}
	if !allows(second) || len(told) != 6 {
		t.Errorf("it is told again and again: %v", told)
	}
}

// Between two looks no file is asked about, whatever comes.
func TestFilesAreLeftAlone(t *testing.T) {
	path := tokenFile(t, first)
	a := opened(t, Options{TokenFile: path})
	a.Allows(nil)
	a.tokens.next.Store(time.Now().Add(lookEvery - lookEvery/10).UnixNano())
	write(t, path, second, 0o600)
	if !a.Allows([]byte("Bearer " + first)) {
		t.Error("the file was read although nobody was to look yet")
	}
	if err := a.Reload(); err != nil || a.Allows([]byte("Bearer "+first)) || !a.Allows([]byte("Bearer "+second)) {
		t.Errorf("reload: %v", err)
	}
	write(t, path, "", 0o600)
	if err := a.Reload(); !errors.Is(err, ErrTokens) || !a.Allows([]byte("Bearer "+second)) {
		t.Errorf("reload of a wrong file: %v", err)
	}
	a.tokens.next.Store(time.Now().Add(time.Hour).UnixNano()) // the clock was set back
	write(t, path, first, 0o600)
	if !a.Allows([]byte("Bearer " + first)) {
		t.Error("a clock that is set back keeps the file from being looked at")
	}
}

func TestOpenFileIsToldOf(t *testing.T) {
	path := tokenFile(t, first)
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	a := opened(t, Options{TokenFile: path})
	if w := a.Warnings(); len(w) != 1 || !strings.Contains(w[0], "chmod o= "+path) || strings.Contains(w[0], first) {
		t.Errorf("%q", w)
	}
}

// FuzzTokens reads arbitrary files: what passes keeps the limits, and no error
// repeats a line.
func FuzzTokens(f *testing.F) {
	f.Add([]byte(first+"\n#\n"+second), "Bearer "+second)
	f.Add([]byte("\xff\x00"), "")
	f.Fuzz(func(t *testing.T, text []byte, header string) {
		list, err := parseTokens(text)
		if (err == nil) != (len(list) > 0) || len(list) > maxTokens {
			t.Fatalf("%d tokens, %v", len(list), err)
		}
		if err != nil {
			return
		}
		token, ok := strings.CutPrefix(strings.ToLower(header), scheme)
		if allows(hashed(list), []byte(header)) && (!ok || !strings.Contains(strings.ToLower(string(text)), token)) {
			t.Fatalf("%q is let in by %q", header, text)
		}
	})
}

// opened is the access by options that are right.
func opened(t *testing.T, o Options) *Access {
	t.Helper()
	a, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// While the file system with the tokens does not respond, the tokens in use stay valid,
// and only one request waits for it. A lease makes opening the file hang, as such a file
// system does.
func TestTokensThatHang(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens")
	write(t, path, strings.Repeat("a", minTokenBytes)+"\n", 0o600)
	a, err := Open(Options{TokenFile: path})
	if err != nil {
		t.Fatal(err)
	}
	write(t, path+".new", strings.Repeat("b", minTokenBytes)+"\n", 0o600)
	held, err := os.Open(path + ".new")
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	if _, err := unix.FcntlInt(held.Fd(), unix.F_SETLEASE, unix.F_WRLCK); err != nil {
		t.Skipf("no lease on this file system: %v", err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
	before, after := []byte("Bearer "+strings.Repeat("a", minTokenBytes)), []byte("Bearer "+strings.Repeat("b", minTokenBytes))
	waited := make(chan bool, 1)
	go func() {
		for a.Allows(before) { // until the change is seen
			time.Sleep(time.Millisecond)
		}
		waited <- true
	}()
	for range 5 {
		time.Sleep(lookEvery / 2)
		if !a.Allows(before) {
			t.Fatal("the tokens in use do not let in")
		}
	}
	if len(waited) > 0 {
		t.Fatal("a token that cannot be read is in use")
	}
	if _, err := unix.FcntlInt(held.Fd(), unix.F_SETLEASE, unix.F_UNLCK); err != nil {
		t.Fatal(err)
	}
	<-waited
	if !a.Allows(after) {
		t.Error("the new token does not let in once it can be read")
	}
}
