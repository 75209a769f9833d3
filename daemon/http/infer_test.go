package http

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/models"
)

// What JSON says comes back as JSON says it, by way of the bytes of the type.
func TestTensorsReturn(t *testing.T) {
	s := serve(t, testLimits())
	for _, tt := range []struct {
		typ, shape, data string
		want             string // "" if data comes back as it is
	}{
		{"FP32", "[1,5]", "[0,-0,1.5,-3.4028235e+38,1e-45]", ""},
		{"FP32", "[1,3]", "[16777217,0.1000000001,1E2]", "[1.6777216e+07,0.1,100]"},
		{"FP32", "[1,1]", "[1e-999]", "[0]"},
		{"FP64", "[1,3]", "[0.1,1.7976931348623157e+308,-5e-324]", ""},
		{"INT8", "[1,4]", "[-128,127,-0,0]", "[-128,127,0,0]"},
		{"INT16", "[1,2]", "[-32768,32767]", ""},
		{"INT32", "[1,2]", "[-2147483648,2147483647]", ""},
		{"INT64", "[1,2]", "[-9223372036854775808,9223372036854775807]", ""},
		{"UINT8", "[1,3]", "[0,255,-0]", "[0,255,0]"},
		{"UINT16", "[1,2]", "[0,65535]", ""},
		{"UINT32", "[1,2]", "[0,4294967295]", ""},
		{"UINT64", "[1,2]", "[0,18446744073709551615]", ""},
		{"BOOL", "[1,4]", "[true,false,1,0]", "[true,false,true,false]"},
		{"BYTES", "[1,3]", `["","a\"b","\u00e4"]`, `["","a\"b","ä"]`},
		{"INT32", "[2,3]", "[[1,2,3],[4,5,6]]", "[1,2,3,4,5,6]"},
		{"INT32", "[2,3]", " [ 1 ,\n2,\t3,4\r,5,6 ] ", "[1,2,3,4,5,6]"},
	} {
		a := s.infer("echo_"+tt.typ, echo(tt.typ, tt.shape, tt.data))
		want := tt.want
		if want == "" {
			want = tt.data
		}
		want = `{"model_name":"echo_` + tt.typ + `","model_version":"1","outputs":[{"name":"Y","datatype":"` + tt.typ +
			`","shape":` + tt.shape + `,"data":` + want + `}]}`
		if a.status != http.StatusOK || string(a.body) != want {
			t.Errorf("%s %s: %d\n%s\nwant\n%s", tt.typ, tt.data, a.status, a.body, want)
		}
	}
}

// The members of an input may come in any order, and unknown ones are left
// alone.
func TestRequestIsLenientWhereItMay(t *testing.T) {
	s := serve(t, testLimits())
	a := s.infer("echo_INT8", `{"x":{"y":[null,{}]},"outputs":[{"z":1,"name":"Y","parameters":{"mine":[1]}}],
		"inputs":[{"data":[1,2],"mine":0,"parameters":{"mine":"x"},"shape":[1,2],"datatype":"INT8","\u006eame":"X"}],
		"parameters":{"mine":1.5,"other":"x"},"id":""}`)
	if a.status != http.StatusOK {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// The way a query reaches the backend.
func TestCallIsFilled(t *testing.T) {
	s := serve(t, testLimits())
	body := `{"id":"q1","parameters":{"timeout":5000,"priority":2},"inputs":[
		{"name":"C","datatype":"FP32","shape":[2,4],"data":[1,2,3,4,5,6,7,8]},
		{"name":"A","datatype":"INT64","shape":[2,3],"data":[1,2,3,4,5,6]},
		{"name":"B","datatype":"INT64","shape":[2,3],"data":[1,2,3,4,5,6]}]}`
	if a := s.infer("linked", body); a.status != http.StatusOK {
		t.Fatalf("%d %s", a.status, a.body)
	}
	c := s.Mu.Last
	if string(c.ID) != "q1" || c.Timeout != 5*time.Millisecond || c.Priority != 2 || c.Size != 2 || c.SeqLen != 3 {
		t.Errorf("%+v", &c)
	}
	var names []string
	var offsets []int64
	for _, in := range c.Inputs {
		offsets = append(offsets, in.Offset)
	}
	for _, in := range c.Given {
		names = append(names, in.Name)
	}
	if diff := cmp.Diff([]string{"A", "B", "C"}, names); diff != "" {
		t.Error("inputs are not in the order of the model:", diff)
	}
	if diff := cmp.Diff([]int64{128, 192, 256}, offsets); diff != "" {
		t.Error(diff)
	}
	shape := c.Shape
	s.infer("linked", strings.NewReplacer("[2,3]", "[1,3]", "[2,4]", "[1,4]", "4,5,6,7,8]", "4]", "3,4,5,6]", "3]").Replace(body))
	if s.Mu.Last.Size != 1 || s.Mu.Last.Shape != shape {
		t.Errorf("size %d; the hash must not depend on it", s.Mu.Last.Size)
	}
	s.infer("linked", strings.ReplaceAll(strings.ReplaceAll(body, "[2,3]", "[2,2]"), ",5,6]", "]"))
	if s.Mu.Last.SeqLen != 2 || s.Mu.Last.Shape == shape {
		t.Errorf("sequence length %d; the hash must depend on it", s.Mu.Last.SeqLen)
	}
	a := s.infer("linked", strings.Replace(strings.Replace(body, "[2,3]", "[2,2]", 1), "[1,2,3,4,5,6]", "[1,2,3,4]", 1))
	if message, _ := a.failure(t); !strings.Contains(message, "another input") {
		t.Errorf("dimensions of one name that differ: %s", message)
	}
}

func TestBackendErrors(t *testing.T) {
	s := serve(t, testLimits())
	body := simple("")
	for _, tt := range []struct {
		err         error
		status      int
		reason, try string
	}{
		{query.ErrQueueFull, 503, query.ReasonQueueFull, "1"},
		{query.ErrDraining, 503, query.ReasonDraining, "1"},
		{query.ErrUnavailable, 503, query.ReasonLoading, "1"},
		{&query.Error{Status: 503, Reason: query.ReasonDeadline, Message: "too late", RetryAfter: 2500 * time.Millisecond}, 503, query.ReasonDeadline, "3"},
		{errors.New("secret: /path"), 500, query.ReasonInternal, ""},
	} {
		s.Refuse.Store(&tt.err)
		a := s.infer("simple", body)
		message, reason := a.failure(t)
		if a.status != tt.status || reason != tt.reason || a.header.Get("Retry-After") != tt.try || strings.Contains(message, "secret") {
			t.Errorf("%v: %d %s, retry after %q", tt.err, a.status, a.body, a.header.Get("Retry-After"))
		}
	}
	s.Refuse.Store(nil)
	a := s.infer("echo_FP64", echo("FP64", "[8,600000]", repeat("1", 8*600000)))
	if _, reason := a.failure(t); a.status != http.StatusRequestEntityTooLarge || reason != query.ReasonTooLarge {
		t.Errorf("inputs over the worker's memory: %d %s", a.status, a.body)
	}
	s.Hold.Store(true)
	c := s.sent(rawRequest("POST", "/v2/models/simple/infer", nil, []byte(body)))
	s.WaitHeld(1)
	s.AnswerHeld(func(*query.Call) query.Reply {
		return query.Reply{Err: &query.Error{Status: 500, Reason: query.ReasonWorkerLost, Message: "the worker was killed"}}
	})
	if _, reason := s.read(c).failure(t); reason != query.ReasonWorkerLost {
		t.Errorf("a worker that failed: %s", reason)
	}
	s.settle()
	if n := s.List[0].Stats.Counts().Fail.Count; n != 6 {
		t.Errorf("%d queries failed, want 6", n)
	}
	for i, n := range s.List[0].Stats.Counts().TurnedAway { // of those, what the scheduler would not know of
		want := uint64(0)
		switch query.TurnedAwayFor[i] {
		case query.ReasonQueueFull, query.ReasonDraining, query.ReasonLoading, query.ReasonDeadline:
			want = 1
		}
		if n != want {
			t.Errorf("%d turned away for %s, want %d", n, query.TurnedAwayFor[i], want)
		}
	}
}

func TestOutputsWithoutJSON(t *testing.T) {
	s := serve(t, testLimits())
	for _, v := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		data := binary.LittleEndian.AppendUint64(nil, math.Float64bits(v))
		s.Output.Store(&data)
		a := s.infer("echo_FP64", echo("FP64", "[1,1]", "[1]"))
		message, reason := a.failure(t)
		if a.status != http.StatusBadRequest || reason != query.ReasonNotJSON || !strings.Contains(message, "binary") {
			t.Errorf("23: %v: %d %s", v, a.status, a.body)
		}
		a = s.infer("echo_FP64", strings.Replace(echo("FP64", "[1,1]", "[1]"), "{", `{"parameters":{"binary_data_output":true},`, 1))
		if a.status != http.StatusOK || !strings.HasSuffix(string(a.body), string(data)) {
			t.Errorf("23: %v as binary: %d %q", v, a.status, a.body)
		}
		s.Output.Store(nil)
	}
	s.live()
}

func TestHealth(t *testing.T) {
	s := serve(t, testLimits())
	check := func(path string, want int) {
		t.Helper()
		if a := s.get(path); a.status != want {
			t.Errorf("%s: %d, want %d", path, a.status, want)
		}
	}
	check("/v2/health/ready", 200)
	for _, err := range []*query.Error{query.ErrUnavailable, query.ErrDrained, query.ErrDraining} {
		s.Unready.Store(err)
		check("/v2/health/ready", 503)
		if _, reason := s.get("/v2/health/ready").failure(t); reason != err.Reason {
			t.Errorf("a daemon that is %s says %s", err.Reason, reason)
		}
	}
	check("/v2/health/live", 200)
	s.Dead.Store(true)
	check("/v2/health/live", 503)
	check("/v2/models/simple/ready", 200)
	s.List[0].SetReady(false)
	check("/v2/models/simple/ready", 503)
	check("/v2/models/simple", 200)
	for _, path := range []string{"", "/config", "/ready"} {
		check("/v2/models/unloaded"+path, 503)
	}
	check("/v2/models/unloaded/stats", 200)
}

func TestStatistics(t *testing.T) {
	s := serve(t, testLimits())
	row := repeat("1", 32)
	two := `{"inputs":[{"name":"INPUT0","datatype":"INT32","shape":[2,16],"data":` + row + `},{"name":"INPUT1","datatype":"INT32","shape":[2,16],"data":` + row + `}]}`
	if a := s.infer("simple", two); a.status != http.StatusOK {
		t.Fatalf("%d %s", a.status, a.body)
	}
	s.infer("simple", simple(""))
	var all struct {
		Stats []struct {
			Name, Version  string
			InferenceCount uint64                                `json:"inference_count"`
			ExecutionCount uint64                                `json:"execution_count"`
			LastInference  int64                                 `json:"last_inference"`
			Inference      map[string]struct{ Count, NS uint64 } `json:"inference_stats"`
		} `json:"model_stats"`
	}
	a := s.get("/v2/models/stats")
	if err := json.Unmarshal(a.body, &all); err != nil || len(all.Stats) != len(s.List) {
		t.Fatalf("%v %s", err, a.body)
	}
	st := all.Stats[0]
	if st.Name != "simple" || st.Version != "1" || st.InferenceCount != 3 || st.ExecutionCount != 2 || st.LastInference == 0 {
		t.Errorf("%+v", st)
	}
	for key, want := range map[string]uint64{"queue": 2, "compute_input": 0, "compute_infer": 6, "compute_output": 0} {
		if got := st.Inference[key]; got.Count != 2 || got.NS != want {
			t.Errorf("%s: %+v, want 2 of %d ns together", key, got, want)
		}
	}
	for _, key := range []string{"success", "fail", "cache_hit", "cache_miss"} {
		if _, ok := st.Inference[key]; !ok {
			t.Errorf("%s is missing", key)
		}
	}
	if s.List[0].Stats.Counts().Executions != 2 || st.Inference["success"].Count != 2 {
		t.Errorf("%+v", st)
	}
}

func TestSignature(t *testing.T) {
	service := func() *query.Service {
		s := query.NewService(0, `m"x`)
		s.MaxBatch, s.MaxQueryBatch = 4, 64
		return s
	}
	for name, tt := range map[string]struct {
		in, out []models.TensorSpec
		batched bool
		config  string
	}{
		"batch": {[]models.TensorSpec{spec("x", models.Float32, -2, 3)}, []models.TensorSpec{spec("y", models.Float16, -1, 5)}, true,
			`"max_batch_size":64,"input":[{"name":"x","data_type":"TYPE_FP32","dims":[3]}],"output":[{"name":"y","data_type":"TYPE_FP16","dims":[5]}]`},
		"fixed": {[]models.TensorSpec{spec("x", models.String, 1, 3)}, []models.TensorSpec{spec("y", models.Bool, 1)}, false,
			`"max_batch_size":0,"input":[{"name":"x","data_type":"TYPE_STRING","dims":[1,3]}],"output":[{"name":"y","data_type":"TYPE_BOOL","dims":[1]}]`},
		"two names": {[]models.TensorSpec{spec("x", models.Int8, -2), spec("z", models.Int8, -3)}, []models.TensorSpec{spec("y", models.Int8, -1)}, false, `"dims":[-1]`},
		"fixed out": {[]models.TensorSpec{spec("x", models.Int8, -1)}, []models.TensorSpec{spec("y", models.Int8, 1)}, false, `"dims":[-1]`},
		"scalar":    {[]models.TensorSpec{spec("x", models.Int8)}, []models.TensorSpec{spec("y", models.Int8)}, false, `"dims":[]`},
		"no rank": {[]models.TensorSpec{{Name: "x", Type: models.Type{Kind: models.KindTensor, Elem: models.Int8}}},
			[]models.TensorSpec{spec("y", models.Int8, -1)}, false, `"dims":[-1]`},
	} {
		s, q := service(), queriesOf(newBackend(t), testLimits())
		if err := s.Loaded(query.Info{Inputs: tt.in, Outputs: tt.out}); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		sig := s.Signature()
		config, metadata := asJSON(t, q.ModelConfig(s, sig)), asJSON(t, q.ModelMetadata(s, sig))
		if s.Mergeable() != tt.batched || !strings.Contains(string(config), tt.config) ||
			strings.Contains(string(config), "dynamic_batching") != tt.batched {
			t.Errorf("%s: batched %v, %s", name, s.Mergeable(), config)
		}
		if !json.Valid(config) || !json.Valid(metadata) {
			t.Errorf("%s: not JSON: %s %s", name, config, metadata)
		}
	}
	for name, in := range map[string]models.TensorSpec{
		"complex":  spec("x", models.Complex64, 1),
		"sequence": {Name: "x", Type: models.Type{Kind: models.KindSequence}},
		"rank 9":   spec("x", models.Int8, 1, 1, 1, 1, 1, 1, 1, 1, 1),
	} {
		if err := service().Loaded(query.Info{Inputs: []models.TensorSpec{in}}); err == nil {
			t.Errorf("%s: a model that the protocol cannot carry was taken", name)
		}
	}
}

func TestAppendString(t *testing.T) {
	for _, v := range []string{"", "a", "\"\\/", "\x00\x1f\n\r\t", "ä€𝄞", strings.Repeat("é", 50)} {
		var back string
		if got := appendString(nil, v); json.Unmarshal(got, &back) != nil || back != v {
			t.Errorf("%q became %s", v, got)
		}
	}
	if got := string(appendString(nil, "a\xffb\xf0\x9f")); got != `"a\ufffdb\ufffd\ufffd"` {
		t.Errorf("invalid UTF-8 became %s", got)
	}
}

func asJSON(t *testing.T, v any) []byte {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return text
}
