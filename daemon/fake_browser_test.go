package daemon

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// browserTimeout bounds each thing that a browser is asked for.
const browserTimeout = 30 * time.Second

// browser is a headless Chromium that is driven over two pipes.
type browser struct {
	t     testing.TB
	to    io.Writer
	ended chan struct{} // closed when it says no more

	mu struct {
		sync.Mutex
		last    int
		waiting map[int]chan browserAnswer
		wrong   []string // what pages complain of
	}
}

type browserAnswer struct {
	ID        int             `json:"id"`
	Method    string          `json:"method"`
	Params    json.RawMessage `json:"params"`
	Result    json.RawMessage `json:"result"`
	SessionID string          `json:"sessionId"`
	Error     *struct{ Message string }
}

// startBrowser starts one, or skips the test where there is none.
func startBrowser(t testing.TB) *browser {
	t.Helper()
	path := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if found, err := exec.LookPath(name); err == nil {
			path = found
			break
		}
	}
	if path == "" {
		t.Skip("no Chromium is on this machine (apt-get install chromium): the dashboard is not looked at")
	}
	theirs, to := pipe(t)
	from, theirOut := pipe(t)
	cmd := exec.Command(path, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
		"--no-first-run", "--disable-background-networking", "--remote-debugging-pipe", "--user-data-dir="+t.TempDir(), "about:blank")
	cmd.ExtraFiles = []*os.File{theirs, theirOut} // descriptors 3 and 4
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Skipf("Chromium does not start: %v", err)
	}
	theirs.Close()
	theirOut.Close()
	b := &browser{t: t, to: to, ended: make(chan struct{})}
	b.mu.waiting = map[int]chan browserAnswer{}
	go b.listen(from)
	t.Cleanup(func() {
		to.Close() // it then quits
		stop := time.AfterFunc(browserTimeout, func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
		_ = cmd.Wait() // it may have been killed
		stop.Stop()
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // its children that linger
		from.Close()
		<-b.ended
	})
	return b
}

func pipe(t testing.TB) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	return r, w
}

// listen hands the browser's answers to those who wait for them.
func (b *browser) listen(from io.Reader) {
	defer close(b.ended)
	r := bufio.NewReader(from)
	for {
		text, err := r.ReadBytes(0)
		if err != nil {
			return
		}
		var a browserAnswer
		if json.Unmarshal(text[:len(text)-1], &a) != nil {
			continue
		}
		b.mu.Lock()
		if to := b.mu.waiting[a.ID]; to != nil {
			delete(b.mu.waiting, a.ID)
			to <- a
		}
		if a.Method == "Runtime.exceptionThrown" || a.Method == "Log.entryAdded" && strings.Contains(string(a.Params), `"level":"error"`) ||
			a.Method == "Runtime.consoleAPICalled" && strings.Contains(string(a.Params), `"type":"error"`) {
			b.mu.wrong = append(b.mu.wrong, string(a.Params))
		}
		b.mu.Unlock()
	}
}

// ask sends a command of the DevTools protocol and decodes its result.
func (b *browser) ask(session, method string, params map[string]any, into any) error {
	answer := make(chan browserAnswer, 1)
	b.mu.Lock()
	b.mu.last++
	id := b.mu.last
	b.mu.waiting[id] = answer
	text, err := json.Marshal(map[string]any{"id": id, "method": method, "params": params, "sessionId": session})
	if session == "" {
		text, err = json.Marshal(map[string]any{"id": id, "method": method, "params": params})
	}
	if err == nil {
		_, err = b.to.Write(append(text, 0))
	}
	b.mu.Unlock()
	if err != nil {
		return err
	}
	limit := time.NewTimer(browserTimeout)
	defer limit.Stop()
	select {
	case a := <-answer:
		if a.Error != nil {
			return fmt.Errorf("%s: %s", method, a.Error.Message)
		}
		if into == nil {
			return nil
		}
		return json.Unmarshal(a.Result, into)
	case <-b.ended:
		return errors.New("the browser has ended")
	case <-limit.C:
		return fmt.Errorf("%s: no answer after %v", method, browserTimeout)
	}
}

// tab is a page in a browser.
type tab struct {
	*browser
	session string
}

// open opens a page in a window of that size.
func (b *browser) open(url string, width, height int, scheme string) *tab {
	b.t.Helper()
	var target struct{ TargetID string }
	var attached struct{ SessionID string }
	b.must(b.ask("", "Target.createTarget", map[string]any{"url": "about:blank"}, &target))
	b.must(b.ask("", "Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &attached))
	p := &tab{b, attached.SessionID}
	for _, domain := range []string{"Page", "Runtime", "Log"} {
		p.do(domain+".enable", map[string]any{})
	}
	p.do("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 640})
	p.do("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]any{{"name": "prefers-color-scheme", "value": scheme}}})
	p.do("Page.navigate", map[string]any{"url": url})
	return p
}

func (b *browser) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

func (p *tab) do(method string, params map[string]any) {
	p.t.Helper()
	p.must(p.ask(p.session, method, params, nil))
}

// eval returns the value of an expression as text.
func (p *tab) eval(expression string) string {
	p.t.Helper()
	var r struct {
		Result           struct{ Value any }
		ExceptionDetails *struct {
			Exception struct{ Description string }
		}
	}
	p.must(p.ask(p.session, "Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true}, &r))
	if e := r.ExceptionDetails; e != nil {
		p.t.Fatalf("%s: %s", expression, e.Exception.Description)
	}
	return fmt.Sprint(r.Result.Value)
}

// await waits until an expression is true.
func (p *tab) await(expression string) {
	p.t.Helper()
	for end := time.Now().Add(browserTimeout); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if p.eval(`(() => { try { return `+expression+` } catch { return false } })()`) == "true" {
			return
		}
	}
	p.t.Fatalf("still not %s; the page says\n%s", expression, p.eval("document.body.innerText"))
}

// text returns what an element says, or "" if there is none.
func (p *tab) text(selector string) string {
	p.t.Helper()
	return p.eval(fmt.Sprintf("(document.querySelector(%q) || {innerText: ''}).innerText", selector))
}

// click clicks into the middle of an element.
func (p *tab) click(selector string) {
	p.t.Helper()
	var at struct{ X, Y float64 }
	text := p.eval(fmt.Sprintf(`(() => { const e = document.querySelector(%q); e.scrollIntoView({block: "center"});
		const r = e.getBoundingClientRect(); return JSON.stringify({X: r.x + r.width / 2, Y: r.y + r.height / 2}) })()`, selector))
	p.must(json.Unmarshal([]byte(text), &at))
	for _, kind := range []string{"mouseMoved", "mousePressed", "mouseReleased"} {
		p.do("Input.dispatchMouseEvent", map[string]any{"type": kind, "x": at.X, "y": at.Y, "button": "left", "clickCount": 1})
	}
}

// key presses a key.
func (p *tab) key(name string) {
	p.t.Helper()
	for _, kind := range []string{"rawKeyDown", "keyUp"} {
		p.do("Input.dispatchKeyEvent", map[string]any{"type": kind, "key": name, "code": name})
	}
}

// shot saves a picture of the page.
func (p *tab) shot(path string) {
	p.t.Helper()
	var r struct{ Data string }
	p.must(p.ask(p.session, "Page.captureScreenshot", map[string]any{"format": "png"}, &r))
	data, err := base64.StdEncoding.DecodeString(r.Data)
	p.must(err)
	p.must(os.WriteFile(path, data, 0o644))
}

// clean fails the test if a page complained.
func (b *browser) clean() {
	b.t.Helper()
	for _, w := range b.complaints() {
		b.t.Errorf("the page complains: %s", w)
	}
}

// complaints returns what pages have complained of: exceptions, errors of the browser, and
// what they wrote on the console as errors.
func (b *browser) complaints() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.mu.wrong)
}
