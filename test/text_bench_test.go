package test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/overlapd/overlapd/models/zoo"
	"github.com/overlapd/overlapd/text/tokenizer"
)

// The load of BenchmarkText. A request with an answer later than textLimit does not count.
const (
	textLimit  = 200 * time.Millisecond
	textWarmup = time.Second
)

// textSizes are the texts of a request, and textCallers how many clients each send a request
// when the last one is answered.
var (
	textSizes   = []int{1, 32}
	textCallers = []int{1, 2, 4, 8, 16}
)

// textSystem is a server under BenchmarkText. Embeddings and scores may have addresses of their
// own.
type textSystem struct {
	name               string
	embeddings, scores string
}

// textCell is the outcome of one load on one system in one turn.
type textCell struct {
	System   string  `json:"system"`
	Busy     bool    `json:"busy"`
	Texts    int     `json:"texts"`
	Callers  int     `json:"callers"`
	Turn     int     `json:"turn"`
	Requests int     `json:"requests"`
	Failed   int     `json:"failed"`
	Rate     float64 `json:"requests_per_second"`
	P50      float64 `json:"p50_ms"`
	P99      float64 `json:"p99_ms"`
	// Other is how many documents a second the other model has ranked.
	Other float64 `json:"other_per_second"`
}

// BenchmarkText compares /v1/embeddings of overlapd with a FastAPI server on ONNX Runtime that
// batches, on the cores that this process may use, the client included: alone, and while two
// callers have another model rank documents. Each system gets each load once an iteration, and
// the medians are printed as Markdown. TEXT_WINDOW is the time of a load, TEXT_OUT a file for
// the cells as JSON.
func BenchmarkText(b *testing.B) {
	window, err := time.ParseDuration(cmp.Or(os.Getenv("TEXT_WINDOW"), "5s"))
	if err != nil {
		b.Fatalf("TEXT_WINDOW: %v; set a duration such as 5s", err)
	}
	systems := []textSystem{startTexts(b)}
	if peer, ok := startTextPeer(b); ok {
		systems = append(systems, peer)
	}
	var names []string
	for _, s := range systems {
		names = append(names, s.name)
	}
	var cells []textCell
	for turn := 1; b.Loop(); turn++ {
		for _, busy := range []bool{false, true} {
			for _, texts := range textSizes {
				for _, callers := range textCallers {
					for _, s := range systems {
						cells = append(cells, s.ask(b, textCell{System: s.name, Busy: busy, Texts: texts, Callers: callers, Turn: turn}, window))
					}
					slices.Reverse(systems) // none is always the first
				}
			}
		}
	}
	b.ReportMetric(0, "ns/op")
	fmt.Printf("\n%s\n", textTables(names, cells))
	if out := os.Getenv("TEXT_OUT"); out != "" {
		text, err := json.MarshalIndent(cells, "", "\t")
		if err = errors.Join(err, os.WriteFile(out, text, 0o600)); err != nil {
			b.Fatal(err)
		}
	}
}

// tokenizingTexts is how many requests BenchmarkTokenizing sends in an iteration.
const tokenizingTexts = 200

// BenchmarkTokenizing reports what part of the processor time of a request is tokenizing: of one text of 128
// tokens to text_encoder, the whole process tree of the daemon counted.
func BenchmarkTokenizing(b *testing.B) {
	path, err := zoo.Build("text_encoder", b.TempDir(), 1, nil)
	if err != nil {
		b.Fatal(err)
	}
	t, err := tokenizer.Read(filepath.Join(filepath.Dir(path), "tokenizer.json"))
	if err != nil {
		b.Fatal(err)
	}
	encode := func(text string) int {
		e, err := t.Encode(b.Context(), text, nil, 1<<20)
		if err != nil {
			b.Fatal(err)
		}
		return len(e.IDs)
	}
	random := rand.New(rand.NewPCG(1, 1))
	var texts []string
	for len(texts) < tokenizingTexts {
		words := strings.Fields(strings.Join(sentences(random, 40), " "))
		n := len(words)
		for n > 0 && encode(strings.Join(words[:n], " ")) > 128 {
			n--
		}
		texts = append(texts, strings.Join(words[:n], " "))
	}
	p := serve(b, config{top: `log_level = "info"`, services: []service{
		{"text_encoder", "zoo:text_encoder", "threads = 0\nseq_lens = [128]\ntarget = \"20s\""},
	}})
	p.settles()
	tokenizing, requests, sent := 0.0, 0.0, 0
	for b.Loop() {
		tokenizing += threadSeconds(b, func() {
			for _, text := range texts {
				encode(text)
			}
		})
		pids := p.processes()
		before := usageOf(pids)
		for _, text := range texts {
			if _, ok := postText(p.url("/v1/embeddings"), map[string]any{"model": "text_encoder", "input": text, "encoding_format": "base64"}); !ok {
				b.Fatal("a request failed")
			}
		}
		requests += usageOf(pids).since(before).seconds
		sent += len(texts)
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(tokenizing/float64(sent)*1e6, "tokenizing-µs")
	b.ReportMetric(requests/float64(sent)*1e6, "request-µs")
	b.ReportMetric(100*tokenizing/requests, "%")
}

// threadSeconds returns the processor time that a function takes in its thread.
func threadSeconds(b *testing.B, run func()) float64 {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	spent := func() float64 {
		var t unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
			b.Fatal(err)
		}
		return float64(t.Nano()) / 1e9
	}
	before := spent()
	run()
	return spent() - before
}

// startTexts starts a daemon with both models. Ranking is a job without deadlines.
func startTexts(b *testing.B) textSystem {
	const lengths = "seq_lens = [16, 32, 64, 128]\nmax_batch = 16\nqueue_limit = 4096\n"
	p := serve(b, config{top: `log_level = "info"`, worker: "threads = 0\ninput_bytes = \"64MiB\"\noutput_bytes = \"128MiB\"", services: []service{
		{"text_encoder", "zoo:text_encoder", lengths + fmt.Sprintf("target = %q", textLimit)},
		{"text_reranker", "zoo:text_reranker", lengths + "target = \"20s\"\nbest_effort = true"},
	}})
	return textSystem{"overlapd", p.url(""), p.url("")}
}

// startTextPeer starts a server for each model, or reports false if Python lacks what they need.
func startTextPeer(b *testing.B) (s textSystem, ok bool) {
	python := cmp.Or(os.Getenv(pythonVariable), "python3")
	if err := exec.Command(python, "-c", "import fastapi, numpy, onnxruntime, tokenizers, uvicorn").Run(); err != nil {
		b.Logf("%s has no FastAPI, ONNX Runtime, tokenizers or uvicorn: only overlapd is measured", python)
		return s, false
	}
	dir := b.TempDir()
	s.name = "FastAPI"
	for model, url := range map[string]*string{"text_encoder": &s.embeddings, "text_reranker": &s.scores} {
		path, err := zoo.Build(model, dir, 1, nil)
		if err != nil {
			b.Fatal(err)
		}
		free, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			b.Fatal(err)
		}
		_, port, _ := net.SplitHostPort(free.Addr().String())
		free.Close()
		server := exec.Command(python, filepath.Join("testdata", "text_server.py"), filepath.Dir(path), port, fmt.Sprint(runtime.GOMAXPROCS(0)))
		server.Stderr = os.Stderr
		if err := server.Start(); err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { server.Process.Kill(); server.Wait() })
		*url = "http://127.0.0.1:" + port
		for end := time.Now().Add(patience); ; time.Sleep(glance) {
			if answer, err := http.Get(*url + "/v1/models"); err == nil {
				answer.Body.Close()
				break
			} else if time.Now().After(end) {
				b.Fatal(err)
			}
		}
	}
	return s, true
}

// sentences returns texts of 3 to 40 words.
func sentences(random *rand.Rand, n int) []string {
	syllables := []string{"ba", "ton", "ri", "kel", "mo", "das", "fi", "pul"}
	list := make([]string, n)
	for i := range list {
		var words []string
		for range 3 + random.IntN(38) {
			words = append(words, syllables[random.IntN(8)]+syllables[random.IntN(8)])
		}
		list[i] = strings.Join(words, " ")
	}
	return list
}

// ask puts a load on a system.
func (s *textSystem) ask(b *testing.B, c textCell, window time.Duration) textCell {
	b.Helper()
	var over atomic.Bool
	var all sync.WaitGroup
	var ranked atomic.Int64
	if c.Busy {
		for caller := range 2 {
			all.Go(func() {
				random := rand.New(rand.NewPCG(uint64(caller), 7))
				for !over.Load() {
					if _, ok := postText(s.scores+"/v1/rerank", map[string]any{"model": "text_reranker", "query": "ba ton", "documents": sentences(random, 32)}); ok {
						ranked.Add(32)
					}
				}
			})
		}
	}
	began := time.Now()
	var mu sync.Mutex
	var took []time.Duration
	var before int64
	for caller := range c.Callers {
		all.Go(func() {
			random := rand.New(rand.NewPCG(uint64(c.Turn), uint64(caller)))
			for !over.Load() {
				t, ok := postText(s.embeddings+"/v1/embeddings", map[string]any{"model": "text_encoder", "input": sentences(random, c.Texts), "encoding_format": "base64"})
				mu.Lock()
				switch {
				case time.Since(began) < textWarmup:
				case ok:
					took = append(took, t)
				default:
					c.Failed++
				}
				mu.Unlock()
			}
		})
	}
	time.Sleep(textWarmup)
	before = ranked.Load()
	time.Sleep(window)
	c.Other = float64(ranked.Load()-before) / window.Seconds()
	over.Store(true)
	all.Wait()
	slices.Sort(took)
	c.Requests = len(took)
	c.Rate = float64(c.Requests) / window.Seconds()
	if c.Requests > 0 {
		c.P50, c.P99 = share(took, 0.5).Seconds()*1e3, share(took, 0.99).Seconds()*1e3
	}
	return c
}

// postText sends a request, and returns how long the answer took.
func postText(url string, body any) (took time.Duration, ok bool) {
	text, err := json.Marshal(body)
	if err != nil {
		return 0, false
	}
	began := time.Now()
	answer, err := client.Post(url, "application/json", bytes.NewReader(text))
	if err != nil {
		return 0, false
	}
	defer answer.Body.Close()
	_, err = new(bytes.Buffer).ReadFrom(answer.Body)
	return time.Since(began), err == nil && answer.StatusCode == http.StatusOK
}

// textTables returns the medians as Markdown, and of each size the highest rate at a p99 within
// the limit, with its quotient to that of the other system.
func textTables(systems []string, cells []textCell) string {
	var text strings.Builder
	for _, busy := range []bool{false, true} {
		for _, texts := range textSizes {
			fmt.Fprintf(&text, "%d texts a request, %s:\n\n| callers |", texts, map[bool]string{false: "alone", true: "beside another model"}[busy])
			for _, s := range systems {
				fmt.Fprintf(&text, " %s, requests/s | p50 | p99 | failed | other/s |", s)
			}
			text.WriteString("\n|--:" + strings.Repeat("|--:|--:|--:|--:|--:", len(systems)) + "|\n")
			best := make([]float64, len(systems))
			for _, callers := range textCallers {
				fmt.Fprintf(&text, "| %d |", callers)
				for i, s := range systems {
					of := func(value func(textCell) float64) float64 {
						var list []float64
						for _, c := range cells {
							if c.System == s && c.Busy == busy && c.Texts == texts && c.Callers == callers {
								list = append(list, value(c))
							}
						}
						return middle(list)
					}
					rate, p99 := of(func(c textCell) float64 { return c.Rate }), of(func(c textCell) float64 { return c.P99 })
					if p99 <= float64(textLimit.Milliseconds()) {
						best[i] = max(best[i], rate)
					}
					fmt.Fprintf(&text, " %.1f | %.1f ms | %.1f ms | %.0f | %.0f |", rate, of(func(c textCell) float64 { return c.P50 }), p99,
						of(func(c textCell) float64 { return float64(c.Failed) }), of(func(c textCell) float64 { return c.Other }))
				}
				text.WriteString("\n")
			}
			fmt.Fprintf(&text, "\nmost at a p99 within %v:", textLimit)
			for i, s := range systems {
				fmt.Fprintf(&text, " %s %.1f/s", s, best[i])
			}
			if len(best) > 1 && best[1] > 0 {
				fmt.Fprintf(&text, ", %.2f times", best[0]/best[1])
			}
			text.WriteString("\n\n")
		}
	}
	return text.String()
}
