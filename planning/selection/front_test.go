package selection

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func names(variants []Variant) (names []string) {
	for _, v := range variants {
		names = append(names, v.Name)
	}
	return names
}

func TestFrontIsThePapers(t *testing.T) {
	want := []string{
		"shufflenet_v2_x0_5", "mobilenet_v3_large", "efficientnet_b0", "efficientnet_b2", "efficientnet_b3", "efficientnet_b4",
		"efficientnet_v2_s", "efficientnet_v2_m", "efficientnet_v2_l",
	}
	if got := names(paperVariants(t, "image", 9)); !slices.Equal(got, want) {
		t.Errorf("%v, want the 9 of section 4.3.3", got)
	}
	if got := paperVariants(t, "image", 60); len(got) != 60 || !slices.IsSortedFunc(got, func(a, b Variant) int { return int(a.Latency[0] - b.Latency[0]) }) {
		t.Errorf("%d variants, want 60, the fastest first", len(got))
	}
}

func TestFront(t *testing.T) {
	given := []Variant{
		{Name: "slower and worse", Accuracy: 70, Latency: []float64{5, 9}}, {Name: "best", Accuracy: 90, Latency: []float64{9, 12}}, {Name: "first", Accuracy: 60, Latency: []float64{3, 2, 4}},
		{Name: "as good", Accuracy: 80, Latency: []float64{4, 7}}, {Name: "slower", Accuracy: 80, Latency: []float64{5, 7}},
	}
	front := Front(given)
	if got, want := names(front), []string{"first", "as good", "best"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if got := front[0].Latency; !slices.Equal(got, []float64{3, 2, 4}) {
		t.Errorf("batches take %v, not what was measured", got)
	}
	want := []string{"slower and worse never runs: as good takes 4 ms instead of 5 for one query, with an accuracy of 80 instead of 70", "slower never runs: as good takes 4 ms instead of 5 for one query, with an accuracy of 80 instead of 80"}
	if got := LeftOut(given); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	for n, want := range map[int]string{
		1: "first", 2: "first best", 3: "first as good best", 5: "first first+33% first+67% as good best", 6: "first first+33% first+67% as good as good+50% best",
	} {
		if got := strings.Join(names(Resize(front, n)), " "); got != want {
			t.Errorf("%d variants: %s, want %s", n, got, want)
		}
	}
}

func TestReadRAMSISRefuses(t *testing.T) {
	const accuracies, rows = "task,model,accuracy_percent\nimage,a,70\n", "task,model,batch,p95_ms\n"
	for want, files := range map[string][2]string{
		"no model of the task":  {accuracies, rows + "text_cpu,a,1,5\n"},
		"no column p95_ms":      {accuracies, "task,model,batch\n"},
		"accuracy_percent.csv:": {"task,model,accuracy_percent\nimage,a,none\n", rows},
		"it must be a number":   {accuracies, rows + "image_cpu,a,1,NaN\n"},
	} {
		dir := t.TempDir()
		for i, name := range []string{"accuracy_percent.csv", "profile_summary_ms.csv"} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(files[i]), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := ReadRAMSIS(dir, "image"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", want, err)
		}
	}
	if _, err := ReadRAMSIS(t.TempDir(), "image"); err == nil {
		t.Error("an empty folder is read")
	}
}
