package daemon

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/daemon/observe/timeline"
)

// watchedConfig is of two services that are overlapped.
func watchedConfig(t *testing.T) config.Config {
	t.Helper()
	path := filepath.Join(t.TempDir(), "p.predictor.json")
	if err := formulaFile().WriteFile(path); err != nil {
		t.Fatal(err)
	}
	return emulatedConfig(t, func(c *config.Config) {
		c.Predictor.File = path
		for i := range c.Services {
			c.Services[i].MaxBatch, c.Services[i].Target = 8, time.Second
		}
	})
}

// load puts queries on both services until the test ends or stop is called.
func (d *emulatedDaemon) load() (stop func()) {
	ctx, end := context.WithCancel(context.Background())
	var clients sync.WaitGroup
	for i := range 6 {
		clients.Go(func() {
			random := rand.New(rand.NewPCG(uint64(i), 1))
			for ctx.Err() == nil {
				d.infer(i%2, 1+random.IntN(8), 8) // may be refused
				time.Sleep(time.Millisecond)
			}
		})
	}
	stop = func() { end(); clients.Wait() }
	d.t.Cleanup(stop)
	return stop
}

// narrow fails the test if the page is wider than its window.
func (p *tab) narrow(width int) {
	p.t.Helper()
	if got := p.eval(fmt.Sprintf(`document.documentElement.scrollWidth <= %d`, width)); got != "true" {
		p.t.Errorf("at %d px the page is %s wide, by %s", width, p.eval(`document.documentElement.scrollWidth`),
			p.eval(fmt.Sprintf(`[...document.querySelectorAll("body *")].filter(e => e.getBoundingClientRect().right > %d + 1).map(e => e.tagName + "." + e.getAttribute("class")).join(" ")`, width)))
	}
}

// TestDashboardUnderLoad looks at a daemon that answers queries, in a wide and a narrow
// window, light and dark: nothing scrolls sideways, nothing complains, and what the page
// says of a decision is what the daemon answers to programs.
func TestDashboardUnderLoad(t *testing.T) {
	b := startBrowser(t)
	d := serveEmulated(t, watchedConfig(t))
	stop := d.load()
	var tabs []*tab
	for _, width := range []int{1400, 390} {
		for _, scheme := range []string{"light", "dark"} {
			p := b.open(d.url("/"), width, 900, scheme)
			tabs = append(tabs, p)
			p.await(`byId("link").innerText === "live" && document.querySelectorAll(".round").length > 3 && document.querySelectorAll("#charts canvas").length > 3 && document.querySelectorAll("#shapes tbody tr").length > 1`)
			p.narrow(width)
			brightness := `(color => color.match(/[\d.]+/g).slice(0, 3).reduce((a, c) => a + Number(c), 0))`
			text, page := p.eval(brightness+`(getComputedStyle(document.querySelector("h2")).color)`), p.eval(brightness+`(getComputedStyle(document.body).backgroundColor)`)
			var ink, paper float64
			if _, err := fmt.Sscan(text+" "+page, &ink, &paper); err != nil || (ink < paper) != (scheme == "light") || max(ink, paper)-min(ink, paper) < 300 {
				t.Errorf("%s: the text has brightness %s on %s, %v", scheme, text, page, err)
			}
		}
	}
	stop()
	p := tabs[0]
	answer, _ := d.get("/overlapd/timeline")
	var of timeline.Page
	if err := json.Unmarshal([]byte(answer), &of); err != nil {
		t.Fatal(err)
	}
	r := newestGroup(of.Rounds)
	if r == nil {
		t.Fatalf("of %d rounds none has two spans", len(of.Rounds))
	}
	for _, p := range []*tab{tabs[0], tabs[len(tabs)-1]} {
		p.await(fmt.Sprintf(`now.rounds.some(r => r.round === %d)`, r.Number))
		p.eval(fmt.Sprintf(`(choose(%d, false), "")`, r.Number))
		p.await(fmt.Sprintf(`document.querySelector("#round-%d .hit") !== null`, r.Number))
		p.click(fmt.Sprintf("#round-%d .hit", r.Number))
		p.await(`!byId("decision").hidden`)
	}
	formatted := func(d time.Duration) string { return p.eval(fmt.Sprintf("duration(%d)", d)) }
	bars := p.eval(`[...document.querySelectorAll("#decision .compare > .soft")].map(e => e.textContent + ": " + e.nextElementSibling.textContent).join("\n")`)
	says(t, bars, "predicted: "+formatted(r.Predicted)+"bound "+formatted(r.Bound), "took: "+formatted(r.Took-r.Late))
	want := []string{"Round " + p.eval(fmt.Sprintf("count(%d)", r.Number))}
	for _, s := range r.Spans {
		want = append(want, of.Services[s.Service].Name, fmt.Sprintf("operators %d to %d of %d", s.Start, s.End, s.Of))
	}
	for _, c := range r.Candidates {
		want = append(want, formatted(c.Headroom), formatted(c.Solo))
	}
	says(t, p.text("#decision"), want...)
	if got := p.eval(`document.querySelectorAll("#decision .candidates tbody tr").length`); got != fmt.Sprint(len(r.Candidates)) {
		t.Errorf("%s candidates are shown of %d", got, len(r.Candidates))
	}
	p.narrow(1400)
	tabs[len(tabs)-1].narrow(390)
	says(t, p.eval(`(() => {
		const o = {...now.overview, host_late_seconds: (now.overview.host_late_seconds || 0) + 60};
		remember(o);
		showOverview(o, now.recent);
		return byId("emulated").innerText })()`), "emulated: nothing is computed, and this host was late ", "% of the time")
	b.clean()
}

// newestGroup returns the last round of several spans that has ended, nil if there is none.
func newestGroup(rounds []timeline.Round) (last *timeline.Round) {
	for i := range rounds {
		if r := &rounds[i]; r.End > 0 && len(r.Spans) > 1 {
			last = r
		}
	}
	return last
}

// hostile is what a name may try to be.
const hostile = `<img src=x onerror="window.hit=1"><script>window.hit=1</script>'"&amp;` + "\u202e"

// TestDashboardHostileNames has every text that a daemon sends try to be markup. All of it
// stays text, and the page no wider than its window.
func TestDashboardHostileNames(t *testing.T) {
	b := startBrowser(t)
	d := serveEmulated(t, watchedConfig(t))
	d.load()
	for _, width := range []int{1400, 390} {
		p := b.open(d.url("/"), width, 900, "light")
		p.await(`now.rounds.length > 3`)
		elements := p.eval(`document.querySelectorAll("img, script").length`)
		// The page finds services and shapes by what they are called, so equal texts stay equal.
		p.eval(fmt.Sprintf(`(() => {
			const bad = v => typeof v === "string" ? v + %q : Array.isArray(v) ? v.map(bad) :
				v !== null && typeof v === "object" ? Object.fromEntries(Object.entries(v).map(([k, w]) => [k, bad(w)])) : v;
			const known = take;
			take = frame => {
				const f = bad(frame);
				f.timeline.epoch = "another";
				f.overview.not_stored = bad(["state"]);
				f.overview.services[0].fault = bad("it failed"); f.overview.services[0].ready = false;
				f.overview.load.services = Object.fromEntries(Object.entries(frame.overview.load.services || {}).map(([k, v]) => [bad(k), v]));
				f.timeline.rounds.forEach(r => r.candidates.concat(r.dropped).forEach(c => c.headroom_ns = Math.abs(c.headroom_ns)));
				known(f);
			};
			const history = showHistory;
			showHistory = h => { const bent = bad(h); bent.epoch = h.epoch; bent.lost = Object.fromEntries(Object.entries(h.lost).map(([k, v]) => [bad(k), v])); history(bent); };
			return "" })()`, hostile))
		p.await(`byId("services").innerText.includes("<img src=x") && now.rounds.length > 3`)
		p.eval(`(refreshHistory(), choose(now.rounds.at(-1).round, true), "")`)
		p.await(`!byId("decision").hidden && byId("charts").innerText.includes("<img src=x")`)
		for _, part := range []string{"#services", "#device", "#notice", "#decision", "#phase", "#shapes", "#charts"} {
			says(t, p.text(part), `<img src=x onerror="window.hit=1"><script>window.hit=1</script>`)
		}
		if got := p.eval(`document.querySelectorAll("img, script").length + " " + window.hit`); got != elements+" undefined" {
			t.Errorf("a name became markup: %s elements, %s before", got, elements)
		}
		p.narrow(width)
	}
	b.clean()
}

// TestDashboardRecovers ends the daemon under a page and starts it again: the page says that
// the connection is lost, and shows the new daemon, without a reload and without what the
// old one has run.
func TestDashboardRecovers(t *testing.T) {
	b := startBrowser(t)
	c := watchedConfig(t)
	d := serveEmulated(t, c)
	c.Listen = d.Addr().String()
	p := b.open(d.url("/"), 1400, 900, "light")
	for range 3 {
		if status, text := d.infer(0, 1, 8); status != http.StatusOK {
			t.Fatal(status, text)
		}
	}
	p.await(`byId("link").innerText === "live" && now.rounds.length === 3`)
	d.stop()
	p.await(`byId("link").innerText === "connection lost" && byId("link").className.includes("lost") && !byId("notice").hidden`)
	says(t, p.text("#notice"), "The connection to the daemon is lost", "Reconnecting")
	d = serveEmulated(t, c)
	p.await(`byId("link").innerText === "live" && byId("notice").hidden && now.rounds.length === 0`)
	if status, text := d.infer(1, 1, 8); status != http.StatusOK {
		t.Fatal(status, text)
	}
	p.await(`now.rounds.length === 1`)
	for _, w := range b.complaints() {
		if !strings.Contains(w, "net::ERR_CONNECTION_REFUSED") && !strings.Contains(w, "net::ERR_INCOMPLETE_CHUNKED_ENCODING") && !strings.Contains(w, "net::ERR_CONNECTION_RESET") {
			t.Errorf("the page complains: %s", w)
		}
	}
}
