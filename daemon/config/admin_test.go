package config

import (
	"path/filepath"
	"strings"
	"testing"
)

func TestAdminPath(t *testing.T) {
	two := configOf("a")
	two.StateDir = "/other"
	for name, test := range map[string]struct {
		socket, runtime, user string
		want                  string // "*" stands for what no test knows
	}{
		"off":              {"off", "/run/overlapd/0", "/run/user/1000", ""},
		"none":             {"", "/run/overlapd/0", "/run/user/1000", ""},
		"chosen":           {"/run/my.sock", "/run/overlapd/0", "/run/user/1000", "/run/my.sock"},
		"systemd":          {"auto", "/run/overlapd/0:/run/more", "/run/user/1000", "/run/overlapd/0/admin.sock"},
		"a user":           {"auto", "", "/run/user/1000", "/run/user/1000/overlapd/admin-*.sock"},
		"relative, no use": {"auto", "", "run", "/state/admin.sock"},
		"neither":          {"auto", "", "", "/state/admin.sock"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("RUNTIME_DIRECTORY", test.runtime)
			t.Setenv("XDG_RUNTIME_DIR", test.user)
			c := configOf("a")
			c.Admin.Socket = test.socket
			got := c.AdminPath()
			if ok, err := filepath.Match(test.want, got); !ok || err != nil {
				t.Errorf("got %q, want %q", got, test.want)
			}
			two := two
			two.Admin.Socket = test.socket
			if name == "a user" && two.AdminPath() == got {
				t.Error("two daemons have one socket")
			}
		})
	}
}

func TestAdminConfig(t *testing.T) {
	long := "/" + strings.Repeat("x", MaxSocketPath)
	for text, want := range map[string]string{
		"": "", `admin_socket = "off"`: "", "admin_socket = \"auto\"\nadmin_group = \"overlapd\"": "", `admin_group = "1000"`: "",
		`admin_socket = "` + long + `"`:                      "107 bytes, but this one has 108",
		"admin_socket = \"/s\"\nlisten = \"unix:/s\"":        "give admin_socket its own path",
		"admin_socket = \"/s\"\ngrpc_listen = \"unix:/s\"":   "give admin_socket its own path",
		`admin_group = "a group"`:                            "name or number of a group",
		"admin_socket = \"off\"\nadmin_group = \"overlapd\"": "needs an admin_socket: leave it out, or set admin_socket = \"auto\"",
	} {
		c, err := Parse("/etc/overlapd/0.toml", []byte(text+"\n"+minimalConfig))
		switch {
		case want == "" && err != nil, want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%q: %v", text, err)
		case err == nil && c.Admin.Socket == "":
			t.Errorf("%q: there is no default", text)
		}
	}
	c, err := Parse("/etc/overlapd/0.toml", []byte("admin_socket = \"my.sock\"\n"+minimalConfig))
	if err != nil || c.AdminPath() != "/etc/overlapd/my.sock" {
		t.Errorf("a relative path: %q, %v", c.AdminPath(), err)
	}
}
