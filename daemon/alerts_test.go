package daemon

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"
)

// The alerts ask for nothing that a daemon does not tell, and say what to do.
func TestAlertsAskForWhatThereIs(t *testing.T) {
	b, err := os.ReadFile("../docs/prometheus/alerts.yml")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Groups []struct {
			Rules []struct {
				Alert, Expr, For    string
				Labels, Annotations map[string]string
			}
		}
	}
	if err := yaml.Unmarshal(b, &file); err != nil {
		t.Fatal(err)
	}
	told := map[string]bool{}
	for _, s := range series(scrapeOfEverything(t)) {
		name, _, _ := strings.Cut(s, "{")
		told[name] = true
	}
	docs, err := os.ReadFile("../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	counted := regexp.MustCompile(`(?:rate|increase)\((\w+)\[`)
	for _, r := range file.Groups[0].Rules {
		names := metricName.FindAllString(r.Expr, -1)
		if len(names) == 0 || len(file.Groups) != 1 || r.Labels["severity"] == "" || r.Annotations["summary"] == "" || r.Annotations["description"] == "" {
			t.Errorf("%s is not whole: %+v", r.Alert, r)
		}
		rated := map[string]bool{}
		for _, m := range counted.FindAllStringSubmatch(r.Expr, -1) {
			rated[m[1]] = true
		}
		for _, name := range names {
			if counts := strings.HasSuffix(name, "_total") || histogram.MatchString(name); !told[name] || counts != rated[name] {
				t.Errorf("%s: there is no %s, or its rate is what counts", r.Alert, name)
			}
		}
		if strings.Count(r.Expr, "(") != strings.Count(r.Expr, ")") {
			t.Errorf("%s: a bracket is open: %s", r.Alert, r.Expr)
		}
		checkLabels(t, r.Alert, r.Expr)
		if !strings.Contains(string(docs), r.Alert) {
			t.Errorf("docs/metrics.md does not name %s", r.Alert)
		}
	}
}

// The alerts for the Prometheus operator are the same.
func TestAlertsOfTheOperator(t *testing.T) {
	read := func(path string) (v map[string]any) {
		t.Helper()
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := yaml.Unmarshal(b, &v); err != nil {
			t.Fatal(err)
		}
		return v
	}
	rule := read("../deploy/kubernetes/components/prometheus/prometheusrule.yaml")
	if diff := cmp.Diff(any(read("../docs/prometheus/alerts.yml")), rule["spec"]); diff != "" {
		t.Errorf("docs/prometheus/alerts.yml and the PrometheusRule differ; copy the groups: %s", diff)
	}
}
