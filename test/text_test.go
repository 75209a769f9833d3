package test

import (
	"encoding/json"
	"io"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/overlapd/overlapd/models/zoo"
)

// textAnswer is an answer of /v1/embeddings or /v1/rerank.
type textAnswer struct {
	status  int
	Data    []struct{ Embedding []float64 }
	Results []struct {
		Index int
		Score float64 `json:"relevance_score"`
	}
	Outputs []struct{ Data []any }
	Error   struct{ Message, Code string }
}

// askText sends a request of texts.
func (p *process) askText(path, body string) (a textAnswer) {
	p.t.Helper()
	answer, err := http.Post(p.url(path), "application/json", strings.NewReader(body))
	if err != nil {
		p.t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err == nil {
		err = json.Unmarshal(text, &a)
	}
	if a.status = answer.StatusCode; err != nil {
		p.t.Fatalf("status %d, %v: %s", a.status, err, text)
	}
	return a
}

// likeness returns the cosine of two embeddings.
func likeness(a, b []float64) float64 {
	var ab, aa, bb float64
	for i := range a {
		ab, aa, bb = ab+a[i]*b[i], aa+a[i]*a[i], bb+b[i]*b[i]
	}
	return ab / math.Sqrt(aa*bb)
}

// Models of the zoo need nothing but a name to take text. What a text becomes depends on no
// other text of its request, and not on its padding.
func TestTexts(t *testing.T) {
	t.Parallel()
	p := serve(t, config{services: []service{
		{"enc", "zoo:text_encoder", "max_batch = 4"}, {"modern", "zoo:text_modern", ""}, {"rank", "zoo:text_reranker", ""}, {"mood", "zoo:text_classifier", ""},
	}})
	long := strings.Repeat("fox ", 30)
	for _, model := range []string{"enc", "modern"} {
		all := p.askText("/v1/embeddings", `{"model":"`+model+`","input":["the fox jumps","the fox jumped","`+long+`","a","the fox jumps"]}`)
		one := p.askText("/v1/embeddings", `{"model":"`+model+`","input":"the fox jumps"}`)
		if len(all.Data) != 5 || len(one.Data) != 1 {
			t.Fatalf("%s: got %+v and %+v", model, all.Error, one.Error)
		}
		same, other := likeness(all.Data[0].Embedding, one.Data[0].Embedding), likeness(all.Data[0].Embedding, all.Data[3].Embedding)
		if same < 1-1e-5 || likeness(all.Data[0].Embedding, all.Data[4].Embedding) < 1-1e-5 || other > 0.999 {
			t.Errorf("%s: a text is like itself by %v, and like another by %v", model, same, other)
		}
	}
	ranked := p.askText("/v1/rerank", `{"model":"rank","query":"fox","documents":["the fox","a dog","`+long+`"]}`)
	if len(ranked.Results) != 3 || ranked.Results[0].Score < ranked.Results[2].Score {
		t.Errorf("ranked: got %+v", ranked)
	}
	classified := p.askText("/v2/models/mood/infer", `{"inputs":[{"name":"text","shape":[1],"datatype":"BYTES","data":["the fox"]}]}`)
	if len(classified.Outputs) != 2 || len(classified.Outputs[0].Data) != 3 || classified.Outputs[1].Data[0].(float64) < classified.Outputs[1].Data[2].(float64) {
		t.Errorf("classified: got %+v", classified.Outputs)
	}
	late := p.askText("/v1/embeddings", `{"model":"enc","input":["a","b"],"parameters":{"timeout":1}}`)
	if late.status != http.StatusServiceUnavailable || late.Error.Code != "deadline_passed" && late.Error.Code != "cannot_finish" {
		t.Errorf("too late: got %+v", late)
	}
	if a := p.askText("/v1/embeddings", `{"model":"rank","input":"a"}`); a.status != http.StatusBadRequest || a.Error.Code != "invalid" {
		t.Errorf("an embedding of a reranker: got %+v", a)
	}
	p.alive()
}

// A tokenizer comes and changes by a reload, without a new worker; a faulty one changes
// nothing.
func TestTokenizerReloads(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	built, err := zoo.Build("text_encoder", dir, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	tokenizer := filepath.Join(filepath.Dir(built), "tokenizer.json")
	model := filepath.Join(dir, "model.onnx")
	if err := os.Rename(built, model); err != nil {
		t.Fatal(err)
	}
	p := serve(t, administered(t, config{services: []service{{"enc", model, ""}}}))
	worker := p.awaitWorker("enc")
	const body = `{"model":"enc","input":"a"}`
	if a := p.askText("/v1/embeddings", body); a.status != http.StatusBadRequest || !strings.Contains(a.Error.Message, "no tokenizer") {
		t.Errorf("without a tokenizer: got %+v", a)
	}
	p.edit(func(c *config) { c.services[0].lines = "tokenizer = \"" + tokenizer + "\"\npooling = \"cls\"" })
	p.reload(0, "enc")
	before := p.askText("/v1/embeddings", body)
	p.edit(func(c *config) { c.services[0].lines = strings.Replace(c.services[0].lines, "cls", "last", 1) })
	p.reload(0, "enc")
	after := p.askText("/v1/embeddings", body)
	if before.status != 200 || after.status != 200 || likeness(before.Data[0].Embedding, after.Data[0].Embedding) > 0.999 {
		t.Errorf("two poolings: got %+v and %+v", before.Error, after.Error)
	}
	text, code := p.command("check", p.path)
	if says(t, text, "service enc takes text, 64 tokens at most; pooling is last, normalized", `pooling = "last"`); code != 0 {
		t.Errorf("check ended with %d", code)
	}
	if err := os.WriteFile(tokenizer, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if text, code := p.command("check", p.path); code != faulty || !strings.Contains(text, "service enc: tokenizer") {
		t.Errorf("check of a bad tokenizer ended with %d: %s", code, text)
	}
	p.reload(faulty, "service enc: tokenizer")
	if a := p.askText("/v1/embeddings", body); a.status != http.StatusOK || p.worker("enc") != worker {
		t.Errorf("after a reload that failed: got %+v from worker %d, before %d", a.Error, p.worker("enc"), worker)
	}
	p.alive()
}
