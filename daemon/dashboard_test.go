package daemon

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/overlapd/overlapd/daemon/config"
)

// lookAt names a daemon that runs, to make the pictures of docs/images with.
const lookAt = "OVERLAPD_DASHBOARD_URL"

// TestDashboardPictures makes the pictures for the documentation.
func TestDashboardPictures(t *testing.T) {
	url := os.Getenv(lookAt)
	if url == "" {
		t.Skip(lookAt + " names no daemon: no picture is made")
	}
	b := startBrowser(t)
	dir := filepath.Join("..", "docs", "images")
	for _, c := range []struct {
		name, scheme  string
		width, height int
	}{
		{"dashboard.png", "light", 1400, 1326},
		{"dashboard-phone.png", "dark", 390, 1500},
	} {
		p := b.open(url, c.width, c.height, c.scheme)
		p.await(`document.querySelectorAll(".round").length > 3 && document.querySelector("#services td.n:nth-child(6)").innerText !== "0.0"`)
		p.eval(`(() => { const two = now.rounds.filter(r => r.spans.length > 1 && r.candidates.length > 2); choose(two[two.length - 1].round, true); return "" })()`)
		p.await(`document.querySelectorAll("#charts canvas").length > 3`)
		p.shot(filepath.Join(dir, c.name))
	}
	b.clean()
}

// A group that is clicked tells its decision; so does the keyboard.
func TestDashboard(t *testing.T) {
	path := filepath.Join(t.TempDir(), "p.predictor.json")
	if err := formulaFile().WriteFile(path); err != nil {
		t.Fatal(err)
	}
	b := startBrowser(t)
	d := serveEmulated(t, emulatedConfig(t, func(c *config.Config) {
		c.Predictor.File = path
		for i := range c.Services {
			c.Services[i].MaxBatch = 8
		}
	}))
	p := b.open(d.url("/"), 1400, 900, "light")
	p.await(`document.querySelector(".empty") !== null && byId("link").innerText === "live"`)
	if got := p.eval(`byId("legend").hidden && byId("keys").hidden`); got != "true" {
		t.Error("what is not there is explained")
	}
	says(t, p.text("body"), "No group has run yet", "overlapd bench serve", "emulated: nothing is computed", "emulated: formula", "s0", "s1")

	var clients sync.WaitGroup
	for i := range 60 {
		clients.Go(func() { d.infer(i%2, 1+i%8, 8) })
	}
	clients.Wait()
	last := d.backend.Timeline().Read(0, 256, nil).Next
	p.await(fmt.Sprintf(`document.querySelector("#round-%d") !== null`, last))
	p.click(fmt.Sprintf("#round-%d .hit", last))
	title := fmt.Sprintf("Round %d", last)
	says(t, p.text("#decision"), title, "The most urgent that ran was s", "predicted", "took", "of 10")
	if got := p.text("#held"); got != "held" {
		t.Errorf("the picture is not held while a group is looked at: %q", got)
	}
	if got := p.eval(`document.querySelector("#decision .candidates") !== null && location.hash`); got != fmt.Sprintf("#select=%d", last) {
		t.Errorf("the candidates or the address are not those of the round: %s", got)
	}

	p.key("Escape")
	p.await(`byId("decision").hidden`)
	if got := p.eval(`(() => { // each once, and above every span, or a span hides it
		const marks = [...document.querySelectorAll(".deadline")], spans = [...document.querySelectorAll(".span")];
		const last = spans[spans.length - 1], places = new Set(marks.map(m => m.getAttribute("d")));
		return marks.length > 0 && places.size === marks.length && marks.every(m => last.compareDocumentPosition(m) & Node.DOCUMENT_POSITION_FOLLOWING) })()`); got != "true" {
		t.Errorf("deadlines are hidden or drawn twice")
	}
	p.key("ArrowLeft") // the first key takes the last round
	p.key("ArrowLeft")
	p.key("Enter")
	says(t, p.text("#decision"), fmt.Sprintf("Round %d", last-1))
	if got := p.eval(`byId("timeline").getAttribute("aria-activedescendant")`); got != fmt.Sprintf("round-%d", last-1) {
		t.Errorf("the active group is %s", got)
	}
	p.click("#after")
	says(t, p.text("#decision"), title)
	if got := p.eval(`(() => {
		const r = {policy: "overlap", spans: [], dropped: [], asked: {}, candidates: [3, 0, 1, 2].map(place => ({place, service: 0}))};
		return [...candidates(r, i => "s", "overlap").querySelectorAll("td:first-child")].map(e => e.textContent).join(" ") })()`); got != "1 2 3 –" {
		t.Errorf("places come as %s", got)
	}
	if err := os.Remove(filepath.Join(d.Config().StateDir, stateName)); err != nil {
		t.Fatal(err)
	}
	d.state.datasets.Predictors()
	p.await(`!byId("notice").hidden`)
	says(t, p.text("#notice"), "Not stored: the state file was changed by another program")
	b.clean()
	d.stop()
	p.await(`byId("link").innerText === "connection lost"`)
	says(t, p.text("#notice"), "The connection to the daemon is lost")
}

// An address opens the decision that it names, and a phone shows all of it
// without scrolling sideways.
func TestDashboardOnAPhone(t *testing.T) {
	b := startBrowser(t)
	d := serveEmulated(t, emulatedConfig(t, func(c *config.Config) { c.Services[0].Name = strings.Repeat("long-name-", 6) }))
	for range 3 {
		if status, text := d.inferNamed(strings.Repeat("long-name-", 6)); status != 200 {
			t.Fatal(status, text)
		}
	}
	p := b.open(d.url("/#select=2"), 390, 844, "dark")
	p.await(`!byId("decision").hidden`)
	says(t, p.text("#decision"), "Round 2", "long-name-")
	if got := p.eval(`document.documentElement.scrollWidth <= 390`); got != "true" {
		t.Errorf("the page is %s wide, by %s", p.eval(`document.documentElement.scrollWidth`),
			p.eval(`[...document.querySelectorAll("main *")].filter(e => e.getBoundingClientRect().right > 390).map(e => e.tagName + "." + e.getAttribute("class")).join(" ")`))
	}
	p = b.open(d.url("/#select=77"), 390, 844, "dark")
	p.await(`!byId("decision").hidden`)
	says(t, p.text("#decision"), "Round 77 is no longer stored")
	p.key("Escape")
	p.await(`byId("decision").hidden && location.hash === ""`)
	p = b.open(d.url("/"), 320, 700, "light")
	p.await(`document.querySelectorAll(".round").length > 0 && document.documentElement.scrollWidth <= 320`)
	p = b.open(d.url("/"), 730, 700, "light")
	p.await(`document.querySelectorAll(".round").length > 0`)
	if got := p.eval(`byId("services").getBoundingClientRect().right - byId("timeline").getBoundingClientRect().right <= 1`); got != "true" {
		t.Errorf("the table of services is wider than its card: %s", p.text("#services"))
	}
	b.clean()
}

// inferNamed sends a query of zeros to a service that takes four numbers.
func (d *emulatedDaemon) inferNamed(service string) (int, string) {
	body := `{"inputs":[{"name":"input","datatype":"FP32","shape":[1,4],"data":[0,0,0,0]}]}`
	r, err := http.Post(d.url("/v2/models/"+service+"/infer"), contentJSON, strings.NewReader(body))
	if err != nil {
		return 0, err.Error()
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err != nil {
		return 0, err.Error()
	}
	return r.StatusCode, string(text)
}

// The page asks for the token that the daemon wants, forgets one that is wrong,
// and shows nothing before it has one.
func TestDashboardWantsAToken(t *testing.T) {
	b := startBrowser(t)
	d := serveEmulated(t, emulatedConfig(t, func(c *config.Config) { c.Access.TokenFile = tokenFile(t, testToken) }))
	p := b.open(d.url("/"), 1400, 900, "light")
	enter := func(token string) {
		p.eval(fmt.Sprintf(`(byId("token").value = %q, "")`, token))
		p.click("#door button")
	}
	p.await(`!byId("door").hidden && byId("link").innerText === "token required"`)
	if got := p.eval(`byId("services").tBodies[0].rows.length + " " + byId("wrong").hidden`); got != "0 true" {
		t.Errorf("before a token is there: %s", got)
	}
	enter("0123456789abcdef-wrong")
	p.await(`!byId("wrong").hidden && sessionStorage.length === 0`)
	enter("not a token")
	p.await(`!byId("wrong").hidden && sessionStorage.length === 0`)
	enter(testToken)
	p.await(`byId("door").hidden && byId("link").innerText === "live" && byId("services").tBodies[0].rows.length === 2`)
	p.do("Page.reload", map[string]any{})
	p.await(`byId("door").hidden && byId("link").innerText === "live"`)
	if got := p.eval(`document.cookie + localStorage.length + location.href`); got != "0"+d.url("/") {
		t.Errorf("the token may be elsewhere, too: %s", got)
	}
	other := b.open(d.url("/"), 1400, 900, "light")
	other.await(`!byId("door").hidden`) // another tab has none
	writeFile(t, d.Config().Access.TokenFile, "0123456789abcdef-next\n")
	if err := d.access.Reload(); err != nil {
		t.Fatal(err)
	}
	p.await(`!byId("door").hidden && !byId("wrong").hidden && sessionStorage.length === 0`)
}
