package test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/overlapd/overlapd/daemon/rpc/inference"
)

// residence is what the status reports of the models that are loaded on demand.
type residence struct {
	Overview struct {
		Memory struct {
			Used      int64 `json:"used_bytes"`
			Limit     int64 `json:"limit_bytes"`
			Loads     int   `json:"loads"`
			Evictions int   `json:"evictions"`
		} `json:"memory"`
		Services []struct {
			Name   string `json:"name"`
			State  string `json:"state"`
			Memory int64  `json:"memory_bytes"`
		} `json:"services"`
	} `json:"overview"`
}

func (p *process) residence() (r residence) {
	p.t.Helper()
	code, body := p.get("/overlapd/status")
	if err := json.Unmarshal(body, &r.Overview); code != 200 || err != nil {
		p.t.Fatalf("status %d, %v: %s", code, err, body)
	}
	return r
}

// in returns the services whose models are in a state.
func (r *residence) in(state string) (names []string) {
	for _, s := range r.Overview.Services {
		if s.State == state {
			names = append(names, s.Name)
		}
	}
	return names
}

// onDemand returns a configuration of so many small models that are loaded on demand.
func onDemand(models int, top, lines string) config {
	c := config{top: "device = \"cpu\"\nload = \"demand\"\n" + top}
	for i := range models {
		c.services = append(c.services, service{fmt.Sprint("m", i), "zoo:tiny_identity", lines})
	}
	return c
}

var identityQuery = query{Inputs: []tensor{{Name: "INPUT0", Datatype: "FP32", Shape: []int64{1, 4}, Data: []float64{1, 2, 3, 4}}}}

// Eight models share memory for about three: each query is answered, and what is in memory stays within
// the limit.
func TestModelsAreLoadedOnDemand(t *testing.T) {
	t.Parallel()
	p := serve(t, onDemand(8, `memory = "80MiB"`, ""))
	if r := p.residence(); len(r.in("on disk")) != 8 || len(p.processes()) != 1 {
		t.Fatalf("before the first query: %+v, %d processes", r, len(p.processes()))
	}
	if code, body := p.get("/v2/models/m3"); code != 200 || !strings.Contains(string(body), "INPUT0") {
		t.Errorf("metadata of a model on disk: %d %s", code, body)
	}
	if code := p.health("/v2/models/m3/ready"); code != 200 {
		t.Errorf("a model on disk that queries wake is not ready: %d", code)
	}
	for turn := range 2 {
		for i := range 8 {
			if a := p.infer(fmt.Sprint("m", i), identityQuery); a.Status != 200 {
				t.Fatalf("turn %d, model %d: %v", turn, i, a)
			}
			if r := p.residence(); r.Overview.Memory.Used > r.Overview.Memory.Limit*105/100 {
				t.Errorf("models take %d of %d bytes", r.Overview.Memory.Used, r.Overview.Memory.Limit)
			}
		}
	}
	r := p.residence()
	if in := r.in("in memory"); len(in) == 0 || len(in) > 4 || r.Overview.Memory.Evictions < 8 {
		t.Errorf("in memory: %v; %+v", in, r.Overview.Memory)
	}
	sum := int64(0)
	for _, pid := range p.processes()[1:] {
		sum += proportional(t, pid)
	}
	if used := r.Overview.Memory.Used; used > sum*5/4 || used < sum*3/4 {
		t.Errorf("models are said to take %d bytes, and their processes take %d", used, sum)
	}
}

// proportional is the memory of a process, of which what it shares counts in part.
func proportional(t *testing.T, pid int) (bytes int64) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		return 0 // it has just ended
	}
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "Pss:") {
			fmt.Sscan(strings.TrimPrefix(line, "Pss:"), &bytes)
		}
	}
	return bytes << 10
}

// A query that cannot wait for its model is refused at once, and told when to come back; the model is
// loaded all the same.
func TestQueryThatCannotWaitForItsModel(t *testing.T) {
	t.Parallel()
	p := serve(t, onDemand(1, "", `target = "20ms"`))
	begin := time.Now()
	a := p.infer("m0", identityQuery)
	if a.Status != 503 || a.Reason != "loading" || a.Retry == "" {
		t.Fatalf("the first query: %v, retry after %q", a, a.Retry)
	}
	if took := time.Since(begin); took > time.Second {
		t.Errorf("it was refused after %v", took)
	}
	p.eventually("an answer", func() bool { return p.infer("m0", identityQuery).Status == 200 })
}

// Many queries that wait for one model are answered together once it is loaded.
func TestQueriesWaitTogether(t *testing.T) {
	t.Parallel()
	p := serve(t, onDemand(1, "", ""))
	var all sync.WaitGroup
	answers := make([]answer, 32)
	for i := range answers {
		all.Go(func() { answers[i] = p.infer("m0", identityQuery) })
	}
	all.Wait()
	for i, a := range answers {
		if a.Status != 200 {
			t.Errorf("query %d: %v", i, a)
		}
	}
	if n := p.count(func(e event) bool { return e.Message == "worker starting" }); n != 1 {
		t.Errorf("%d workers were started", n)
	}
}

// A model that cannot be loaded says why, and nobody else notices; once its file is there, it is loaded
// as every other.
func TestModelThatCannotBeLoaded(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "model.onnx")
	if err := os.WriteFile(file, []byte("no model"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := onDemand(1, "", "")
	c.services = append(c.services, service{"damaged", file, ""})
	p := serve(t, c)
	a := p.infer("damaged", identityQuery)
	if a.Status != 503 || a.Reason != "given_up" || !strings.Contains(a.Error, "could not be loaded") {
		t.Fatalf("a damaged file: %v", a)
	}
	if a := p.infer("m0", identityQuery); a.Status != 200 {
		t.Errorf("the neighbour: %v", a)
	}
	good := zooFile(t, "tiny_identity")
	if err := os.WriteFile(file+".new", good, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		t.Fatal(err)
	}
	p.eventually("the repaired model", func() bool { return p.infer("damaged", identityQuery).Status == 200 })
}

// A worker that is killed while it loads is started again, and the query that waits is answered.
func TestWorkerKilledWhileItLoads(t *testing.T) {
	t.Parallel()
	p := serve(t, onDemand(2, "", ""))
	if a := p.infer("m1", identityQuery); a.Status != 200 {
		t.Fatal(a)
	}
	answered := p.runs("m0", identityQuery)
	e := p.await("that the worker starts", func(e event) bool { return e.Message == "worker starting" && e.Service == "m0" })
	_ = syscall.Kill(e.PID, syscall.SIGKILL)
	if a := <-answered; a.Status != 200 {
		t.Errorf("the query that waited: %v", a)
	}
	if a := p.infer("m1", identityQuery); a.Status != 200 {
		t.Errorf("the neighbour: %v", a)
	}
}

// A reload of services whose models are on disk loads none of them, and one that is in memory goes on.
func TestReloadOnDemand(t *testing.T) {
	t.Parallel()
	p := serve(t, onDemand(3, "", ""))
	if a := p.infer("m0", identityQuery); a.Status != 200 {
		t.Fatal(a)
	}
	pid := p.awaitWorker("m0")
	p.edit(func(c *config) {
		c.services = append(slices.Delete(c.services, 2, 3), service{"new", "zoo:tiny_identity", ""})
		c.services[1].lines = `target = "59s"`
	})
	p.reload(0)
	if r := p.residence(); !slices.Equal(r.in("on disk"), []string{"m1", "new"}) || p.worker("m0") != pid {
		t.Errorf("after the reload: %+v, worker %d, was %d", r, p.worker("m0"), pid)
	}
	for _, name := range []string{"m0", "m1", "new"} {
		if a := p.infer(name, identityQuery); a.Status != 200 {
			t.Errorf("%s answered %v", name, a)
		}
	}
	if a := p.infer("m2", identityQuery); a.Status != 404 {
		t.Errorf("a removed model: %v", a)
	}
}

// A thousand models on disk cost no process and little memory, and the daemon starts as quickly as
// without them.
func TestThousandModelsOnDisk(t *testing.T) {
	t.Parallel()
	few := serve(t, onDemand(1, "", ""))
	begin := time.Now()
	many := serve(t, onDemand(1001, "", ""))
	t.Logf("ready after %v", time.Since(begin))
	if n := len(many.processes()); n != 1 {
		t.Errorf("%d processes", n)
	}
	a, b := proportional(t, few.processes()[0]), proportional(t, many.processes()[0])
	t.Logf("%d kB for each model", (b-a)/1000>>10)
	if b-a > 1000*(100<<10) {
		t.Errorf("a thousand models on disk take %d MiB", (b-a)>>20)
	}
	if a := many.infer("m700", identityQuery); a.Status != 200 {
		t.Error(a)
	}
}

// Texts wait for a model on disk as tensors do, over each of the protocols, and its tokenizer is read
// with it.
func TestTextsOnDemand(t *testing.T) {
	t.Parallel()
	c := onDemand(0, "", "")
	c.grpc = "127.0.0.1:0"
	c.services = []service{{"by-v1", "zoo:text_encoder", ""}, {"by-v2", "zoo:text_encoder", ""}, {"by-grpc", "zoo:text_encoder", ""}}
	p := serve(t, c)
	response, err := client.Post(p.url("/v1/embeddings"), "application/json", strings.NewReader(`{"model":"by-v1","input":["one text","another"]}`))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	var got struct {
		Data []struct{ Embedding []float32 }
	}
	if err := json.NewDecoder(response.Body).Decode(&got); err != nil || response.StatusCode != 200 || len(got.Data) != 2 || len(got.Data[1].Embedding) == 0 {
		t.Errorf("status %d, %v: %+v", response.StatusCode, err, got)
	}
	body := `{"inputs":[{"name":"text","datatype":"BYTES","shape":[1,1],"data":["one text"]}]}`
	if a := p.post(client, "by-v2", []byte(body), len(body)); a.Status != 200 {
		t.Errorf("a text as a tensor: %v", a)
	}
	input := &inference.ModelInferRequest_InferInputTensor{Name: "text", Datatype: "BYTES", Shape: []int64{1}, Contents: &inference.InferTensorContents{BytesContents: [][]byte{[]byte("one text")}}}
	answer, err := p.grpcClient(t).ModelInfer(limited(t), &inference.ModelInferRequest{ModelName: "by-grpc", Inputs: []*inference.ModelInferRequest_InferInputTensor{input}})
	if err != nil || len(answer.Outputs) != 1 || answer.Outputs[0].Name != "embedding" {
		t.Errorf("a text over gRPC: %v, %v", answer, err)
	}
}
