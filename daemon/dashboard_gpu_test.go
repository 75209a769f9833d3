package daemon

import (
	"net/http"
	"testing"

	"github.com/overlapd/overlapd/cuda/mig"
)

// Of a pool the page shows the rounds of one device, and those of another when it is
// chosen.
func TestDashboardOfAPool(t *testing.T) {
	r := newGPURig(t, "a", "b", "c", "d").divide(
		mig.Want{Profile: "3g.40gb", Services: []string{"a", "c"}}, mig.Want{Profile: "2g.20gb", Services: []string{"b", "d"}})
	r.start()
	r.eventually("ready", r.Ready)
	b := startBrowser(t)
	client := &http.Client{}
	defer client.CloseIdleConnections()
	for range 5 {
		for _, service := range []string{"a", "b", "c", "d"} {
			if status, text := r.ask(client, service); status != http.StatusOK {
				t.Fatal(service, status, text)
			}
		}
	}
	p := b.open(r.url("/"), 1400, 900, "light")
	const lane = `[...new Set(following(now.rounds).rounds.map(r => r.device))].join() + " " + [...byId("devices").querySelectorAll("button")].map(b => b.getAttribute("aria-pressed")).join()`
	p.await(`now.rounds.length > 2 && ` + lane + ` === "part0 true,false"`)
	says(t, p.text("#devices"), "part0", "part1")
	says(t, p.text("#services"), "a", "b", "c", "d")
	p.click("#devices button:nth-of-type(2)")
	p.await(lane + ` === "part1 false,true"`)
	p.eval(`(choose(following(now.rounds).rounds.at(-1).round, true), "")`)
	p.await(`!byId("decision").hidden && /The most urgent that ran was [bd]/.test(byId("decision").innerText)`)
	p.click("#devices button:nth-of-type(1)")
	p.await(lane + ` === "part0 true,false"`)
	b.clean()
}
