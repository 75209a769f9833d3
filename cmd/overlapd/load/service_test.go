package load

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/valyala/fasthttp"
)

func TestLearnReadsBothKindsOfParameter(t *testing.T) {
	for _, tc := range []struct {
		parameters, device string
		target             time.Duration
	}{
		{`{}`, "", 0},
		{`{"device":"cuda","qos_target_us":50000}`, "cuda", 50 * ms},
		{`{"device":{"string_value":"emulated"},"qos_target_us":{"string_value":"1500"}}`, "emulated", 1500 * time.Microsecond},
		{`{"device":null,"qos_target_us":"soon"}`, "", 0},
		{`{"qos_target_us":-5}`, "", 0},
	} {
		var p parameters
		if err := json.Unmarshal([]byte(tc.parameters), &p); err != nil {
			t.Fatal(err)
		}
		var s service
		if s.learn(p); s.device != tc.device || s.target != tc.target {
			t.Errorf("%s: device %q and target %s, want %q and %s", tc.parameters, s.device, s.target, tc.device, tc.target)
		}
	}
}

func TestAskMakesRequests(t *testing.T) {
	s := serve(t, answerOK)
	o := short(s, func(o *Options) { o.Batch, o.SeqLen, o.Target = 2, 5, 7*ms })
	d, err := ask(t.Context(), &o)
	if err != nil {
		t.Fatal(err)
	}
	svc := d.services[0]
	if len(svc.requests) != o.Inputs || svc.target != 7*ms || svc.device != "cpu" {
		t.Errorf("%d requests, target %s, device %q", len(svc.requests), svc.target, svc.device)
	}
	body := string(parse(t, svc.requests[0]).Body())
	for _, want := range []string{
		`"name":"input_ids","datatype":"INT64","shape":[2,5],"parameters":{"binary_data_size":80}`,
		`"name":"x","datatype":"FP32","shape":[1,4],"parameters":{"binary_data_size":16}`,
	} {
		if !strings.Contains(body, want) {
			t.Errorf("request %q lacks %s", body, want)
		}
	}
}

func TestAskRefusesForeignAnswers(t *testing.T) {
	for _, tc := range []struct {
		path, answer string
		want         error
	}{
		{"/v2", "<html>", errDaemon},
		{"/v2/models/a", "[]", errService},
		{"/v2/models/a", `{"inputs":[{"name":"x","datatype":"COMPLEX","shape":[1]}]}`, errInput},
		{"/v2/models/a", `{"inputs":[{"name":"x","datatype":"FP32","shape":[-9223372036854775808,99999999999]}]}`, errInput},
	} {
		s := serve(t, answerOK)
		s.override = func(ctx *fasthttp.RequestCtx) bool {
			if string(ctx.Path()) == tc.path {
				ctx.SetBodyString(tc.answer)
				return true
			}
			return false
		}
		o := short(s, func(*Options) {})
		if _, err := ask(t.Context(), &o); !errors.Is(err, tc.want) {
			t.Errorf("%s answers %s: error %v, want %v", tc.path, tc.answer, err, tc.want)
		}
	}
}

func TestUnknownServiceIsNamed(t *testing.T) {
	s := serve(t, answerOK)
	o := short(s, func(o *Options) { o.Services = []string{"a", "c"} })
	_, err := ask(t.Context(), &o)
	if err == nil || !strings.Contains(err.Error(), `"c"`) || !strings.Contains(err.Error(), "unknown model c") {
		t.Errorf("error %v, want the name and what the daemon says", err)
	}
}
