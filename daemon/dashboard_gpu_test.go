package daemon

import (
	"net/http"
	"testing"

	"github.com/overlapd/overlapd/cuda/mig"
)

// On a GPU that is divided the page shows the groups of one instance, and those
// of another when it is chosen.
func TestDashboardOfInstances(t *testing.T) {
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
	const shown = `now.services.map(s => s.name).join() + " " + [...byId("instances").querySelectorAll("button")].map(b => b.getAttribute("aria-pressed")).join()`
	p.await(`now.rounds.length > 2 && ` + shown + ` === "a,c true,false"`)
	says(t, p.text("#instances"), "MIG 3g.40gb", "MIG 2g.20gb")
	says(t, p.text("#services"), "a", "b", "c", "d") // services are of all instances
	p.click("#instances button:nth-of-type(2)")
	p.await(`now.rounds.length > 2 && ` + shown + ` === "b,d false,true"`)
	p.eval(`(choose(now.rounds[now.rounds.length - 1].round, true), "")`)
	p.await(`!byId("decision").hidden && /The most urgent that ran was [bd]/.test(byId("decision").innerText)`)
	p.click("#instances button:nth-of-type(1)")
	p.await(`now.rounds.length > 2 && ` + shown + ` === "a,c true,false"`)
	b.clean()
}
