package serving

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// listenAt makes a socket, and its folder.
func listenAt(t *testing.T, path string) *net.UnixListener {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	return ln
}

func TestFindSocket(t *testing.T) {
	dir, err := os.MkdirTemp("", "find")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	t.Setenv("RUNTIME_DIRECTORY", "")
	t.Setenv("XDG_RUNTIME_DIR", dir)
	t.Setenv("STATE_DIRECTORY", filepath.Join(dir, "state"))
	systemd := filepath.Join(dir, "run")
	find := func(o socketOptions, want string, fault ...string) {
		t.Helper()
		got, err := o.find(systemd)
		if got != want || (err == nil) != (len(fault) == 0) {
			t.Errorf("%+v: found %q, %v; want %q", o, got, err, want)
		}
		for _, part := range fault {
			if err == nil || !strings.Contains(err.Error(), part) {
				t.Errorf("%+v: %v; want %q in it", o, err, part)
			}
		}
	}
	find(socketOptions{path: "/a/b.sock"}, "/a/b.sock")
	find(socketOptions{}, "", "no running daemon with an admin socket was found", "--config")

	dead := listenAt(t, filepath.Join(systemd, "1", "admin.sock"))
	dead.SetUnlinkOnClose(false)
	dead.Close()
	gpu := filepath.Join(systemd, "0", "admin.sock")
	listenAt(t, gpu)
	find(socketOptions{}, gpu)

	own := filepath.Join(dir, "overlapd", "admin-1234.sock")
	listenAt(t, own)
	find(socketOptions{}, "", "2 daemons are running", "--admin "+gpu, "--admin "+own)

	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text+"\ndevice = \"cpu\"\n[[service]]\nname = \"a\"\nmodel = \"m.onnx\"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	find(socketOptions{config: file("0.toml", "")}, gpu)
	find(socketOptions{config: file("5.toml", `admin_socket = "five.sock"`)}, filepath.Join(dir, "five.sock"))
	find(socketOptions{config: file("6.toml", `admin_socket = "off"`)}, "", "admin_socket is off", "SIGHUP")
	find(socketOptions{config: file("7.toml", "ready = 0")}, "", "7.toml:1: ready")
	state := file("8.toml", "state_dir = \""+dir+"/eight\"")
	listenAt(t, filepath.Join(dir, "eight", "admin.sock"))
	find(socketOptions{config: state}, filepath.Join(dir, "eight", "admin.sock"))
}
