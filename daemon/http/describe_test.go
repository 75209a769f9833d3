package http

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/models"
)

func TestMetadata(t *testing.T) {
	s := query.NewService(0, "m")
	err := s.Loaded(query.Info{Platform: "p", Inputs: []models.TensorSpec{spec(`in"`, models.String, -2, 3), {Name: "any", Type: models.Type{Kind: models.KindTensor, Elem: models.Bool}}},
		Outputs: []models.TensorSpec{spec("out", models.BFloat16)}})
	if err != nil {
		t.Fatal(err)
	}
	metadata := asJSON(t, s.Metadata(s.Signature()))
	type tensor struct {
		Name, Datatype string
		Shape          []int64
	}
	var got struct {
		Name, Platform  string
		Versions        []string
		Inputs, Outputs []tensor
	}
	if err := json.Unmarshal(metadata, &got); err != nil {
		t.Fatalf("%v: %s", err, metadata)
	}
	want := got
	want.Name, want.Platform, want.Versions = "m", "p", []string{"1"}
	want.Inputs = []tensor{{`in"`, "BYTES", []int64{-1, 3}}, {"any", "BOOL", []int64{-1}}}
	want.Outputs = []tensor{{"out", "BF16", []int64{}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s\n%s", metadata, diff)
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
