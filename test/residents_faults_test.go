package test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// control loads or unloads a model by request.
func (p *process) control(model, what string) answer {
	response, err := client.Post(p.url(fmt.Sprintf("/v2/repository/models/%s/%s", model, what)), "application/json", nil)
	if err != nil {
		return answer{Err: err}
	}
	return read(response)
}

// mustControl is control, which must succeed.
func (p *process) mustControl(model, what string) {
	p.t.Helper()
	if a := p.control(model, what); a.Status != 200 {
		p.t.Fatalf("%s of %s: %v", what, model, a)
	}
}

// full is a folder with a file system of its own without a free byte. Its files stay as they are.
func full(t *testing.T, dir string) (free func()) {
	t.Helper()
	path := filepath.Join(dir, "filler")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for chunk := make([]byte, 1<<16); len(chunk) > 0; {
		if _, err := file.Write(chunk); err != nil {
			chunk = chunk[:len(chunk)/2]
		}
	}
	return func() { os.Remove(path) }
}

// Where there is no room for the optimized form of a model, it is served without, the log says why, and
// nothing of it is left, in memory neither. Once there is room, the form is kept.
func TestFullDiskWhileLoading(t *testing.T) {
	t.Parallel()
	c := onDemand(2, "", "")
	c.services[1].model = write(t, "model.onnx", zooFile(t, "tiny_cnn"))
	c.dir = t.TempDir()
	if err := syscall.Mount("overlapd-full", c.dir, "tmpfs", 0, "size=8m"); err != nil {
		t.Skip("no small file system can be mounted: ", err)
	}
	t.Cleanup(func() { syscall.Unmount(c.dir, syscall.MNT_DETACH) })
	p := serve(t, c)
	if a := p.infer("m0", identityQuery); a.Status != 200 {
		t.Fatal(a)
	}
	p.mustControl("m0", "unload")
	free := full(t, c.dir)
	pixels := query{Inputs: []tensor{{Name: "input", Datatype: "FP32", Shape: []int64{1, 3, 32, 32}, Data: make([]float64, 3*32*32)}}}
	a := p.infer("m1", pixels)
	if a.Status != 200 || !strings.Contains(p.logged(), "served uncached") || !strings.Contains(p.logged(), syscall.ENOSPC.Error()) {
		t.Errorf("on a full disk: %v\n%s", a, p.logged())
	}
	if a := p.infer("m0", identityQuery); a.Status != 200 {
		t.Errorf("a neighbour whose form is kept: %v", a)
	}
	if left, _ := filepath.Glob(filepath.Join(c.dir, "*", ".incoming-*")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	free()
	p.mustControl("m1", "unload")
	if a := p.infer("m1", pixels); a.Status != 200 {
		t.Errorf("with room again: %v", a)
	}
	if n := strings.Count(p.logged(), "served uncached"); n != 1 {
		t.Errorf("%d loads were not kept", n)
	}
}

// sums returns a model with so many floats as weights, whose output is its input times their sum.
func sums(weights int64) message {
	return model(graph([]message{node("MatMul", []string{"X", "W"}, "products"), node("MatMul", []string{"products", "ones"}, "Y")}, []message{
		floats("W", []int64{1, weights}, func(int) float32 { return 1 }),
		floats("ones", []int64{weights, 1}, func(int) float32 { return 1 }),
	}))
}

// put replaces a file in one step.
func put(t *testing.T, path string, data []byte) {
	t.Helper()
	if err := os.WriteFile(path+".new", data, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// A model whose file grows while it is on disk counts with what it takes now, within 5 %, and others give
// their memory for it. One that has become larger than the memory, or damaged, is refused with the
// reason, and what is in memory stays.
func TestModelThatGrows(t *testing.T) {
	t.Parallel()
	const megabyte = 1 << 20 / 4 / 2 // floats, of both weights
	file := write(t, "sums.onnx", sums(megabyte))
	c := onDemand(3, `memory = "900MiB"`, "")
	c.services = append(c.services, service{"grows", file, ""})
	p := serve(t, c)
	for _, name := range []string{"m0", "m1", "m2"} {
		if a := p.infer(name, identityQuery); a.Status != 200 {
			t.Fatal(a)
		}
	}
	for _, size := range []int64{1, 32, 8} {
		put(t, file, sums(size*megabyte))
		a := p.infer("grows", one(2))
		if want := float64(2 * size * megabyte); a.Status != 200 || a.Outputs[0].Data[0] != want {
			t.Fatalf("with %d MiB: %v, want %v", size, a, want)
		}
		p.eventually("the account to be right", func() bool { // it is measured every ten seconds
			took := proportional(t, p.worker("grows"))
			for _, s := range p.residence().Overview.Services {
				if s.Name == "grows" {
					return s.Memory > took*95/100 && s.Memory < took*105/100 && s.Memory > size<<20
				}
			}
			return false
		})
		p.mustControl("grows", "unload")
	}
	if err := os.Truncate(file, 1000<<20); err != nil {
		t.Fatal(err)
	}
	a := p.infer("grows", one(2))
	refusedWith(t, a, 503, "given_up")
	says(t, a.Error, "its file has 1000 MiB, but there are 900 MiB for all models: raise memory")
	put(t, file, []byte("damaged"))
	refusedWith(t, p.infer("grows", one(2)), 503, "given_up")
	if a := p.infer("m0", identityQuery); a.Status != 200 {
		t.Errorf("the neighbour: %v", a)
	}
}
