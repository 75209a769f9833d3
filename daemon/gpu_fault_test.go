package daemon

import (
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/overlapd/overlapd/daemon/config"
)

// 34 and 35 of the bad inputs, on a GPU that two services share: one runs out of
// its memory, loses it, or hangs in a kernel. Its worker is replaced, and its query
// is run again unless it hung; the other service answers all that it is asked, from the same
// worker.
func TestFaultOfOneServiceOnGPU(t *testing.T) {
	faults := t.TempDir()
	t.Setenv(faultsVariable, faults)
	r := newGPURig(t, "a", "b")
	r.config.Ready = config.ReadyAll
	r.config.Worker.SpanTimeout = 500 * time.Millisecond
	r.config.Worker.BackoffMin, r.config.Worker.BackoffMax = time.Millisecond, 10*time.Millisecond
	r.start()
	r.eventually("ready", r.Ready)
	neighbour, stop := make(chan int), make(chan struct{})
	go func() {
		client := &http.Client{Transport: &http.Transport{}}
		defer client.CloseIdleConnections()
		n := 0
		defer func() { neighbour <- n }()
		for ; ; n++ {
			select {
			case <-stop:
				return
			default:
			}
			if status, text := r.ask(client, "b"); status != http.StatusOK || !strings.Contains(text, "[6,6,6") {
				t.Errorf("the neighbour: %d %s", status, text)
				return
			}
		}
	}()
	for _, fault := range []struct {
		order, says string
		again       bool // the query is not to blame, and another worker runs it
	}{
		{faultMemory, "out of memory", true}, {faultLost, "can no longer use the GPU", true}, {faultHang, "worker hangs", false},
	} {
		r.eventually("ready", r.Ready)
		before := r.pids()
		order := filepath.Join(faults, strconv.Itoa(before["a"]))
		writeFile(t, order+".new", fault.order)
		if err := os.Rename(order+".new", order); err != nil {
			t.Fatal(err)
		}
		status, text := r.ask(http.DefaultClient, "a")
		if right := status == http.StatusOK && strings.Contains(text, "[6,6,6"); right != fault.again || !right && status != http.StatusInternalServerError {
			t.Errorf("%s: the query: %d %s", fault.order, status, text)
		}
		r.eventually(fault.order+": the next worker", func() bool { return r.Ready() && r.pids()["a"] != before["a"] })
		if names := changed(before, r.pids()); !slices.Equal(names, []string{"a"}) {
			t.Errorf("%s: workers of %v are other ones", fault.order, names)
		}
		if log := r.log.String(); !strings.Contains(log, fault.says) {
			t.Errorf("%s: the log says nothing of it:\n%s", fault.order, log)
		}
		if _, err := os.Stat(order); err == nil {
			t.Errorf("%s did not happen", fault.order)
		}
	}
	close(stop)
	if n := <-neighbour; n == 0 {
		t.Error("the neighbour was not asked")
	}
	http.DefaultClient.CloseIdleConnections()
}
