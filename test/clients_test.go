package test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// pythonVariable names an interpreter that has the clients. make clients makes one.
const pythonVariable = "OVERLAPD_TEST_PYTHON"

// Clients that people have work unchanged: health, descriptions, inference, errors.
func TestClients(t *testing.T) {
	t.Parallel()
	python := os.Getenv(pythonVariable)
	if python == "" {
		python = "python3"
	}
	for name, module := range map[string]string{
		"triton_client.py": "tritonclient.grpc, tritonclient.http", "kserve_client.py": "kserve", "open_inference_client.py": "open_inference.grpc, open_inference.openapi",
		"text_client.py": "cohere, langchain_openai, openai, tokenizers",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if err := exec.Command(python, "-c", "import "+module).Run(); err != nil {
				t.Skipf("%s has no %s: make clients installs the clients, or name an interpreter that has them in %s", python, module, pythonVariable)
			}
			c := config{dir: t.TempDir(), grpc: "127.0.0.1:0", services: []service{{name: "add", model: "zoo:tiny_add"}}}
			if name == "text_client.py" {
				c.services = []service{{"enc", "zoo:text_encoder", "max_batch = 8"}, {"rank", "zoo:text_reranker", ""}}
			}
			p := serve(t, c)
			out, err := exec.Command(python, filepath.Join("testdata", name), p.address, p.grpcAddress(), c.dir).CombinedOutput()
			if err != nil || string(out) != "ok\n" {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}
