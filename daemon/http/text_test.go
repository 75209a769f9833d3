package http

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"math"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/daemon/text"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/models/zoo"
	"github.com/overlapd/overlapd/text/export"
)

// exportedText is the text of zoo:text_encoder, without normalization.
var exportedText = sync.OnceValues(func() (*export.Text, error) {
	dir, err := os.MkdirTemp("", "text")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	path, err := zoo.Build("text_encoder", dir, 1, nil)
	if err != nil {
		return nil, err
	}
	return export.Read(path, export.Settings{Pooling: "cls", Normalize: "no", Lengths: []int{8}})
})

// texting is a server with services of texts: "enc", whose embeddings are 2, 0.5 and as many
// zeros as there are further tokens up to 8, and "rank", whose score is the sum of the tokens
// after the first.
func texting(t testing.TB) *server {
	t.Helper()
	exported, err := exportedText()
	if err != nil {
		t.Fatal(err)
	}
	s := serve(t, testLimits())
	for _, name := range []string{"enc", "rank"} {
		v := query.NewService(models.ServiceID(len(s.List)), name)
		v.Policy, v.QoSTarget, v.QueueLimit, v.MaxBatch, v.MaxQueryBatch, v.Text = "edf", patience, 256, 1, 8, exported
		v.Backend = &textBackend{s.backend, name}
		out := spec("last_hidden_state", models.Float32, -1, -1, 4)
		if name == "rank" {
			out = spec("logits", models.Float32, -1, 1)
		}
		info := query.Info{Inputs: []models.TensorSpec{spec("input_ids", models.Int64, -1, -1), spec("attention_mask", models.Int64, -1, -1)}, Outputs: []models.TensorSpec{out}}
		if err := v.Loaded(info); err != nil {
			t.Fatal(err)
		}
		v.SetReady(true)
		s.List = append(s.List, v)
	}
	return s
}

// textBackend is the backend of a service of texts.
type textBackend struct {
	*backend
	name string
}

func (b *textBackend) Submit(c *query.Call) error {
	if err := b.Refuse.Load(); err != nil {
		return *err
	}
	b.Mu.Lock()
	b.Mu.Last = query.Call{Timeout: c.Timeout, Priority: c.Priority}
	b.Mu.Unlock()
	out := models.Tensor{Type: models.Float32, Shape: []int64{1, c.Inputs[0].Shape[1], 4}}
	if b.name == "rank" {
		score := float32(0)
		for i := 8; i < len(c.Inputs[0].Data); i += 8 {
			score += float32(binary.LittleEndian.Uint64(c.Inputs[0].Data[i:]))
		}
		out = models.Tensor{Type: models.Float32, Shape: []int64{1, 1}, Data: binary.LittleEndian.AppendUint32(nil, math.Float32bits(score/1e5))}
	} else {
		for i := range out.Shape[1] * 4 {
			out.Data = binary.LittleEndian.AppendUint32(out.Data, math.Float32bits([]float32{2, 0.5, 0, -1}[i%4]))
		}
	}
	if data := b.Output.Load(); data != nil {
		copy(out.Data, *data)
	}
	c.Answer(query.Reply{Outputs: []models.Tensor{out}})
	return nil
}

func (s *server) post(path, body string) answered {
	s.t.Helper()
	return s.exchange(rawRequest("POST", path, nil, []byte(body)))
}

// openAIAnswer is an answer of both kinds, or an error.
type openAIAnswer struct {
	Object, Model string
	Data          []struct {
		Object    string
		Index     int
		Embedding any
	}
	Results []struct {
		Index    int
		Score    float64 `json:"relevance_score"`
		Document *struct{ Text string }
	}
	Usage struct {
		Prompt int `json:"prompt_tokens"`
		Total  int `json:"total_tokens"`
	}
	Error *struct {
		Message, Type, Code string
		Param               *string
	}
}

func (a answered) openAI(t testing.TB) (v openAIAnswer) {
	t.Helper()
	if err := json.Unmarshal(a.body, &v); err != nil {
		t.Fatalf("%v: got %s", err, a.body)
	}
	if got := a.header.Get("Content-Type"); got != contentJSON {
		t.Errorf("an answer of type %q", got)
	}
	return v
}

// Every form of the input has its embeddings, in order.
func TestEmbeddings(t *testing.T) {
	s := texting(t)
	for input, want := range map[string]struct{ texts, tokens int }{
		`"a"`: {1, 3}, `""`: {1, 2}, `["a","b c"]`: {2, 7}, `[5,6,7]`: {1, 3}, `[[5],[6,7]]`: {2, 3}, `["a",[5]]`: {2, 4},
		`"\ud834\udd1e\n"`: {1, 3}, ` [ "a" , "b" ] `: {2, 6},
	} {
		a := s.post("/v1/embeddings", `{"input":`+input+`,"user":{"x":[1]},"dimensions":null,"model":"enc"}`)
		v := a.openAI(t)
		if a.status != http.StatusOK || len(v.Data) != want.texts || v.Usage.Prompt != want.tokens || v.Usage.Total != want.tokens || v.Object != "list" || v.Model != "enc" {
			t.Errorf("%s: got %d %s", input, a.status, a.body)
			continue
		}
		for i, d := range v.Data {
			if row, _ := json.Marshal(d.Embedding); string(row) != "[2,0.5,0,-1]" || d.Index != i || d.Object != "embedding" {
				t.Errorf("%s: got %s", input, a.body)
			}
		}
	}
	long := strings.Repeat("a ", 100)
	if a := s.post("/v1/embeddings", `{"model":"enc","input":["`+long+`","a"]}`); a.header.Get(headerCut) != "1" {
		t.Errorf("%d, %v texts are said to be truncated", a.status, a.header.Get(headerCut))
	}
	s.settle()
}

func TestEmbeddingForms(t *testing.T) {
	s := texting(t)
	v := s.post("/v1/embeddings", `{"model":"enc","input":"a","encoding_format":"base64"}`).openAI(t)
	raw, err := base64.StdEncoding.DecodeString(v.Data[0].Embedding.(string))
	want := []float32{2, 0.5, 0, -1}
	var got []float32
	for i := 0; i < len(raw); i += 4 {
		got = append(got, math.Float32frombits(binary.LittleEndian.Uint32(raw[i:])))
	}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("base64: %v %v", got, err)
	}
	if a := s.post("/v1/embeddings", `{"model":"enc","input":"a","dimensions":2}`); !strings.Contains(string(a.body), `"embedding":[2,0.5]}`) {
		t.Errorf("two dimensions: %s", a.body)
	}
	// Dimensions that are left out must not keep the rest from length 1.
	exported := *s.List[len(s.List)-2].Text
	exported.Normalize = true
	s.List[len(s.List)-2].Text = &exported
	if a := s.post("/v1/embeddings", `{"model":"enc","input":"a","dimensions":1}`); !strings.Contains(string(a.body), `"embedding":[1]}`) {
		t.Errorf("one dimension, normalized: %s", a.body)
	}
	nan := binary.LittleEndian.AppendUint32(nil, math.Float32bits(float32(math.NaN())))
	s.Output.Store(&nan)
	if v := s.post("/v1/embeddings", `{"model":"enc","input":"a"}`).openAI(t); v.Error == nil || v.Error.Code != query.ReasonNotJSON {
		t.Errorf("NaN: %+v", v.Error)
	}
}

// The best document is the first, and only as many are returned as were asked for.
func TestRerank(t *testing.T) {
	s := texting(t)
	for _, path := range []string{"/v1/rerank", "/v2/rerank"} {
		v := s.post(path, `{"model":"rank","query":"a","documents":["~",{"text":"!","title":1},"b"],"top_n":2,"return_documents":true,"max_tokens_per_doc":4}`).openAI(t)
		if len(v.Results) != 2 || v.Results[0].Index != 0 || v.Results[1].Index != 2 || v.Results[0].Document.Text != "~" || v.Results[0].Score <= v.Results[1].Score || v.Usage.Total != 15 {
			t.Errorf("%s: got %+v", path, v)
		}
	}
	v := s.post("/v1/rerank", `{"model":"rank","query":"a","documents":["a"],"top_n":9}`).openAI(t)
	if len(v.Results) != 1 || v.Results[0].Document != nil || v.Results[0].Score <= 0.5 || v.Results[0].Score >= 1 {
		t.Errorf("got %+v", v)
	}
}

// Everything that is wrong has OpenAI's form, the status and the part that is wrong.
func TestBadTexts(t *testing.T) {
	s := texting(t)
	many := strings.Repeat(`"a",`, text.MaxTexts) + `"a"`
	for body, want := range map[string]struct {
		status             int
		param, code, words string
	}{
		`{`:                                                        {400, "", "invalid", "expected a string"},
		`[]`:                                                       {400, "", "invalid", "must be an object"},
		`{"model":"enc"}`:                                          {400, "input", "invalid", `has no "input"`},
		`{"input":"a"}`:                                            {400, "model", "invalid", `has no "model"`},
		`{"model":1,"input":"a"}`:                                  {400, "model", "invalid", "must be a string"},
		`{"model":"none","input":"a"}`:                             {404, "model", "not_found", "unknown model"},
		`{"model":"simple","input":"a"}`:                           {400, "model", "invalid", "no tokenizer"},
		`{"model":"rank","input":"a"}`:                             {400, "model", "invalid", "ask an encoder"},
		`{"model":"enc","input":[]}`:                               {400, "input", "invalid", "is empty"},
		`{"model":"enc","input":[[]]}`:                             {400, "input", "invalid", "is empty"},
		`{"model":"enc","input":null}`:                             {400, "input", "invalid", "must be a string"},
		`{"model":"enc","input":[1,"a"]}`:                          {400, "input", "invalid", "must be an integer"},
		`{"model":"enc","input":[1.5]}`:                            {400, "input", "invalid", "must be an integer"},
		`{"model":"enc","input":[{"text":"a"}]}`:                   {400, "input", "invalid", "must be a string"},
		`{"model":"enc","input":"\ud834"}`:                         {400, "input", "invalid", "surrogate"},
		"{\"model\":\"enc\",\"input\":\"\xff\"}":                   {400, "input", "invalid", "not UTF-8"},
		`{"model":"enc","input":[99999]}`:                          {400, "input", "invalid", "the token 99999"},
		`{"model":"enc","input":[` + many + `]}`:                   {400, "input", "invalid", "more than 2048 texts"},
		`{"model":"enc","input":"a","encoding_format":"int8"}`:     {400, "encoding_format", "invalid", `not "int8"`},
		`{"model":"enc","input":"a","dimensions":0}`:               {400, "dimensions", "invalid", "at least 1"},
		`{"model":"enc","input":"a","dimensions":5}`:               {400, "dimensions", "invalid", "have 4"},
		`{"model":"enc","input":"a","parameters":{"timeout":-1}}`:  {400, "parameters", "invalid", "timeout"},
		`{"model":"enc","input":"a","parameters":{"variant":"x"}}`: {400, "parameters", "invalid", "has one model"},
		`{"model":"enc","input":"a","parameters":{"headers":1}}`:   {400, "parameters", "invalid", "reserved"},
		`{"model":"enc","input":"a"} x`:                            {400, "", "invalid", "continues"},
		`{"model":"enc","input":"a","input":"a"}`:                  {400, "", "invalid", "twice"},
	} {
		a := s.post("/v1/embeddings", body)
		v := a.openAI(t)
		if v.Error == nil || a.status != want.status || v.Error.Code != want.code || v.Error.Type != "invalid_request_error" || !strings.Contains(v.Error.Message, want.words) {
			t.Errorf("%.80s: got %d %s", body, a.status, a.body)
			continue
		}
		if p := v.Error.Param; (p == nil) != (want.param == "") || p != nil && *p != want.param {
			t.Errorf("%.80s: the parameter is not %q: %s", body, want.param, a.body)
		}
	}
	for body, words := range map[string]string{
		`{"model":"rank","query":"a"}`:                                        `has no \"documents\"`,
		`{"model":"rank","documents":["a"]}`:                                  `has no \"query\"`,
		`{"model":"rank","query":"a","documents":[]}`:                         "is empty",
		`{"model":"rank","query":"a","documents":["a",1]}`:                    "must be a string",
		`{"model":"rank","query":"a","documents":[{"title":"a"}]}`:            `has no \"text\"`,
		`{"model":"rank","query":"a","documents":["a"],"top_n":0}`:            "at least 1",
		`{"model":"rank","query":"a","documents":[` + many + `]}`:             "more than 2048",
		`{"model":"enc","query":"a","documents":["a"]}`:                       "ask a reranker",
		`{"model":"rank","query":"a","documents":"a"}`:                        "must be an array",
		`{"model":"rank","query":"a","documents":["a"],"return_documents":1}`: "true or false",
	} {
		if a := s.post("/v1/rerank", body); a.status != http.StatusBadRequest || a.openAI(t).Error == nil || !strings.Contains(string(a.body), words) {
			t.Errorf("%.80s: got %d %s", body, a.status, a.body)
		}
	}
	if a := s.post("/v2/rerank", `{}`); a.status != http.StatusBadRequest {
		a.failure(t)
	}
	s.live()
	s.settle()
}

// Errors that no request of texts causes have OpenAI's form below /v1, too.
func TestOpenAIErrors(t *testing.T) {
	s := texting(t)
	for path, want := range map[string]int{"/v1/embeddings": http.StatusMethodNotAllowed, "/v1/none": http.StatusNotFound, "/v1/models/none": http.StatusNotFound} {
		if a := s.get(path); a.status != want || a.openAI(t).Error == nil {
			t.Errorf("%s: got %d %s", path, a.status, a.body)
		}
	}
	var refusal error = query.ErrQueueFull
	s.Refuse.Store(&refusal)
	a := s.post("/v1/embeddings", `{"model":"enc","input":"a"}`)
	if v := a.openAI(t); a.status != 503 || v.Error == nil || v.Error.Code != query.ReasonQueueFull || v.Error.Type != "server_error" || a.header.Get("Retry-After") == "" {
		t.Errorf("got %d %s", a.status, a.body)
	}
	if a := s.exchange(rawRequest("POST", "/v1/embeddings", map[string]string{"Content-Length": "99999999999"}, nil)); a.status != 413 || a.openAI(t).Error == nil {
		t.Errorf("got %d %s", a.status, a.body)
	}
}

// The shorter timeout of header and body counts.
func TestTextTimeout(t *testing.T) {
	s := texting(t)
	for _, test := range []struct {
		header, body string
		want         time.Duration
	}{{"", "", 0}, {"2000000", "", 2 * time.Second}, {"", `,"parameters":{"timeout":3000000,"priority":2}`, 3 * time.Second},
		{"2000000", `,"parameters":{"timeout":3000000}`, 2 * time.Second}, {"4000000", `,"parameters":{"timeout":3000000}`, 3 * time.Second},
		{"0", `,"parameters":{"timeout":3000000}`, 3 * time.Second}} {
		header := map[string]string{}
		if test.header != "" {
			header[headerTimeout] = test.header
		}
		a := s.exchange(rawRequest("POST", "/v1/embeddings", header, []byte(`{"model":"enc","input":"a"`+test.body+`}`)))
		if got := s.Mu.Last.Timeout; a.status != http.StatusOK || got != test.want {
			t.Errorf("%+v: got %d, %v", test, a.status, got)
		}
	}
	for _, bad := range []string{"x", "-1", "1.5"} {
		a := s.exchange(rawRequest("POST", "/v1/embeddings", map[string]string{headerTimeout: bad}, []byte(`{"model":"enc","input":"a"}`)))
		if a.status != http.StatusBadRequest {
			t.Errorf("%q: got %d", bad, a.status)
		}
	}
}

func TestTextModels(t *testing.T) {
	s := texting(t)
	var list struct{ Data []struct{ ID, Object string } }
	if err := json.Unmarshal(s.get("/v1/models").body, &list); err != nil || len(list.Data) != 2 || list.Data[0].ID != "enc" || list.Data[1].Object != "model" {
		t.Errorf("got %v %+v", err, list)
	}
	if a := s.get("/v1/models/rank"); a.status != http.StatusOK || !strings.Contains(string(a.body), `"id":"rank"`) {
		t.Errorf("got %d %s", a.status, a.body)
	}
	if a := s.get("/v1/models/simple"); a.status != http.StatusNotFound {
		t.Errorf("got %d %s", a.status, a.body)
	}
}

// FuzzTexts decodes requests of texts. What is accepted is JSON, has texts, and gives all of its
// memory back.
func FuzzTexts(f *testing.F) {
	for _, body := range []string{
		`{"model":"enc","input":"a"}`, `{"model":"enc","input":["a\u00e4\ud834\udd1e",[1,2]],"encoding_format":"base64","dimensions":2}`,
		`{"model":"rank","query":"q","documents":["a",{"text":"b"}],"top_n":1,"return_documents":true}`,
		`{"model":"enc","input":[1,2],"parameters":{"timeout":5,"priority":1,"variant":"x","least_accuracy":1e3}}`,
	} {
		f.Add(true, []byte(body))
		f.Add(false, []byte(body))
	}
	f.Fuzz(func(t *testing.T, rerank bool, body []byte) {
		route := &embeddingsRoute
		if rerank {
			route = &rerankRoute
		}
		memory := query.NewBudget(64 << 20)
		r := &textRequest{memory: memory, json: scanner{b: body}}
		err := readObject(&r.json, r, route.body)
		if err == nil {
			err = r.json.end()
		}
		if err == nil {
			err = route.check(r)
		}
		if memory.Give(r.held); memory.Used() != 0 {
			t.Fatalf("%d bytes are left", memory.Used())
		}
		if err != nil {
			checkRefusal(t, err)
			return
		}
		if !json.Valid(body) || len(r.Items) == 0 || len(r.Items) > text.MaxTexts {
			t.Fatalf("accepted with %d texts: %q", len(r.Items), body)
		}
	})
}

// An inference request with strings is of texts; one with tensors reaches the model as it is.
func TestInferTexts(t *testing.T) {
	s := texting(t)
	ask := func(service, body string) (v struct {
		ID      string
		Outputs []struct {
			Name, Datatype string
			Shape          []int
			Data           []any
		}
	}) {
		t.Helper()
		a := s.infer(service, body)
		if err := json.Unmarshal(a.body, &v); a.status != http.StatusOK || err != nil {
			t.Fatalf("status %d, %v: %s", a.status, err, a.body)
		}
		return v
	}
	for shape, data := range map[string]string{"[2]": `["a","b c"]`, "[2,1]": `[["a"],["b c"]]`} {
		v := ask("enc", `{"id":"x","parameters":{"priority":3},"inputs":[{"name":"text","shape":`+shape+`,"datatype":"BYTES","data":`+data+`}]}`)
		out := v.Outputs[0]
		if v.ID != "x" || len(v.Outputs) != 1 || out.Name != "embedding" || !slices.Equal(out.Shape, []int{2, 4}) || len(out.Data) != 8 || out.Data[4] != 2.0 {
			t.Errorf("shape %s: %+v", shape, v)
		}
	}
	if s.Mu.Last.Priority != 3 {
		t.Errorf("the queries have priority %d", s.Mu.Last.Priority)
	}
	v := ask("rank", `{"inputs":[{"name":"text","shape":[2,2],"datatype":"BYTES","data":[["a","b"],["a","~"]]}],"outputs":[{"name":"scores"},{"name":"labels"}]}`)
	if v.Outputs[0].Name != "scores" || v.Outputs[0].Data[0].(float64) >= v.Outputs[0].Data[1].(float64) || v.Outputs[1].Data[0] != "LABEL_0" {
		t.Errorf("pairs: %+v", v)
	}
	binary := `{"inputs":[{"name":"text","shape":[1],"datatype":"BYTES","parameters":{"binary_data_size":5}}]}`
	if a := s.exchange(binaryRequest("enc", binary, bytesElement("a"))); a.status != http.StatusOK {
		t.Errorf("binary: got %d %s", a.status, a.body)
	}
	tensors := `{"inputs":[{"name":"input_ids","shape":[1,2],"datatype":"INT64","data":[1,2]},{"name":"attention_mask","shape":[1,2],"datatype":"INT64","data":[1,1]}]}`
	if v := ask("enc", tensors); v.Outputs[0].Name != "last_hidden_state" {
		t.Errorf("tensors: %+v", v)
	}
	for body, words := range map[string]string{
		`{"inputs":[{"name":"text","shape":[1,3],"datatype":"BYTES","data":["a","b","c"]}]}`:                     "for pairs",
		`{"inputs":[{"name":"other","shape":[1],"datatype":"BYTES","data":["a"]}]}`:                              "no input",
		`{"inputs":[{"name":"text","shape":[2],"datatype":"BYTES","data":["a"]}]}`:                               "elements",
		`{"inputs":[{"name":"text","shape":[1],"datatype":"BYTES","data":["a"]}],"outputs":[{"name":"logits"}]}`: "no output",
		`{"inputs":"BYTES"}`: "must be an array",
	} {
		a := s.infer("enc", body)
		if message, _ := a.failure(t); a.status != http.StatusBadRequest || !strings.Contains(message, words) {
			t.Errorf("%s: got %d %s", body, a.status, a.body)
		}
	}
	if a := s.exchange(binaryRequest("enc", binary, bytesElement("\xff"))); a.status != http.StatusBadRequest {
		t.Errorf("binary that is not UTF-8: got %d %s", a.status, a.body)
	}
	var refusal error = query.ErrQueueFull
	s.Refuse.Store(&refusal)
	for _, body := range []string{tensors, `{"inputs":[{"name":"text","shape":[1],"datatype":"BYTES","data":["a"]}]}`} {
		if _, reason := s.infer("enc", body).failure(t); reason != query.ReasonQueueFull {
			t.Errorf("refused with %s", reason)
		}
	}
}
