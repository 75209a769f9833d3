package test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// reloadEnds are what the log says at the end of a reload.
var reloadEnds = []string{
	"configuration reloaded", "configuration invalid; nothing was changed", "reading the configuration failed",
}

// edits are what is changed in the configuration of a daemon, by what they are.
// None touches the service that is let alone.
var edits = map[string]func(c *chaos, d *disturbance, services *[]service) (text string){
	"a target": func(c *chaos, d *disturbance, services *[]service) string {
		s := c.edited(services, "burst")
		s.lines = fmt.Sprintf("target = \"%dms\"\nqueue_limit = %d", 300+d.random.IntN(100), 32+d.random.IntN(64))
		return ""
	},
	"a model": func(c *chaos, d *disturbance, services *[]service) string {
		c.edited(services, "slow").model = c.file(fmt.Sprintf("slow-%d.onnx", d.random.Uint32()), slow(10+d.random.IntN(5)))
		return ""
	},
	"a service more": func(c *chaos, d *disturbance, services *[]service) string {
		*services = append(*services, service{"extra", "zoo:tiny_add", fmt.Sprintf("target = %q", patience)})
		return ""
	},
	"a broken model": func(c *chaos, d *disturbance, services *[]service) string {
		c.edited(services, "merged").model = c.file("broken.onnx", message("half writ"))
		return ""
	},
	"a pipe": func(c *chaos, d *disturbance, services *[]service) string {
		pipe := filepath.Join(filepath.Dir(c.p.path), "pipe")
		if err := syscall.Mkfifo(pipe, 0o600); err != nil && !errors.Is(err, os.ErrExist) {
			c.ledger.fault("a pipe cannot be made: %v", err)
		}
		if d.random.IntN(2) == 0 {
			return fmt.Sprintf("plan = %q\n%s[[device]]\nname = \"a\"\nkind = \"cpu\"\n", pipe, c.p.config.text())
		}
		c.edited(services, "merged").model = pipe
		return ""
	},
	"a wrong file": func(*chaos, *disturbance, *[]service) string { return "listen = [\n" },
}

func (c *chaos) edited(services *[]service, name string) *service {
	return &(*services)[slices.IndexFunc(*services, func(s service) bool { return s.name == name })]
}

// file puts a file where the models lie.
func (c *chaos) file(name string, content []byte) string {
	path := filepath.Join(filepath.Dir(c.p.path), name)
	if err := os.WriteFile(path, content, 0o600); err != nil {
		c.ledger.fault("a model cannot be written: %v", err)
	}
	return path
}

// reload has the daemon read a configuration that was edited, and then again
// the one that it had.
func (c *chaos) reload(d *disturbance) {
	names := slices.Sorted(maps.Keys(edits))
	what := names[d.random.IntN(len(names))]
	changed := c.p.config
	changed.services = slices.Clone(changed.services)
	text := edits[what](c, d, &changed.services)
	if text == "" {
		text = changed.text()
	}
	how := c.readAgain(text, d.random)
	if what == "a pipe" && (strings.HasPrefix(how, byCommand+"<nil>") || strings.HasSuffix(how, "info, "+reloadEnds[0])) {
		c.ledger.fault("a reload takes a pipe for a file: %s", how)
	}
	if what == "a service more" {
		// It may not be there: its worker could not be started, for want of descriptors say.
		c.once("extra", sum(d.random, 1), checkSum, append([]string{"not_found"}, workerRefusals...))
	}
	c.note("reload: with %s: %s; and back: %s", what, how, c.readAgain(c.p.config.text(), d.random))
}

const byCommand = "by command, "

// readAgain writes a configuration and has it read, by a signal or by command,
// and says what became of it.
func (c *chaos) readAgain(text string, random *rand.Rand) string {
	part := c.p.path + ".new"
	err := os.WriteFile(part, []byte(text), 0o600)
	if err == nil {
		err = os.Rename(part, c.p.path)
	}
	if err != nil {
		return err.Error()
	}
	ends := func() (n int, last string) {
		n = c.p.count(func(e event) bool {
			if slices.Contains(reloadEnds, e.Message) {
				last = e.Level + ", " + e.Message
				return true
			}
			return false
		})
		return n, last
	}
	before, _ := ends()
	if random.IntN(2) == 0 {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		cmd := exec.CommandContext(ctx, program, "reload", "--config", c.p.path)
		out, err := cmd.CombinedOutput()
		if ctx.Err() != nil {
			c.ledger.fault("overlapd reload does not end: %s", out)
		}
		return fmt.Sprintf(byCommand+"%v, %.300q", err, out)
	}
	if err := c.p.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		return err.Error()
	}
	for begin := time.Now(); time.Since(begin) < patience; time.Sleep(glance) {
		if n, last := ends(); n > before {
			return "by signal, " + last
		}
	}
	c.ledger.fault("a reload does not end")
	return "by signal, no end"
}

// settleConfiguration has the daemon follow the configuration that it began
// with, now that nothing hinders it.
func (c *chaos) settleConfiguration() {
	path := c.p.path
	if err := os.WriteFile(path, []byte(c.p.config.text()), 0o600); err != nil {
		c.ledger.fault("%v", err)
	}
	var out []byte
	var err error
	for begin := time.Now(); time.Since(begin) < patience; time.Sleep(glance) {
		if out, err = exec.Command(program, "reload", "--config", path).CombinedOutput(); err == nil {
			return
		}
	}
	c.ledger.fault("the daemon does not take its own configuration back: %v: %s", err, out)
}
