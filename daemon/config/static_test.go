package config

import (
	"slices"
	"strings"
	"testing"
)

const staticConfig = `policy = "static"
device = "cuda"
[[service]]
name = "a"
model = "m.onnx"
active_thread_percentage = 40
[[service]]
name = "b"
model = "m.onnx"
active_thread_percentage = 60
`

// Each service has a device of its own for its share of each that it is on.
func TestDivided(t *testing.T) {
	c, err := Parse("c.toml", []byte(staticConfig))
	if err != nil {
		t.Fatal(err)
	}
	d := Divided(c, c.Policy)
	if names := d.Pool().names(); !slices.Equal(names, []string{"/a", "/b"}) || !slices.Equal(d.On("a"), []int{0}) || !slices.Equal(d.On("b"), []int{1}) {
		t.Errorf("%q, a on %v, b on %v", names, d.On("a"), d.On("b"))
	}
	if p := d.Pool(); p[0].Kind != DeviceCUDA || p[0].Whole() != "" || p[0].GPU != c.GPU {
		t.Errorf("%+v", p[0])
	}
	if len(c.Devices) != 0 || c.Services[0].On != nil {
		t.Errorf("what it was made of has changed: %+v", c)
	}
	if same := Divided(c, "overlap"); len(same.Devices) != 0 {
		t.Errorf("overlap divides into %+v", same.Devices)
	}
	c, err = Parse("c.toml", []byte(strings.Replace(staticConfig, "device = \"cuda\"\n", "[[device]]\nname = \"x\"\nkind = \"cuda\"\n[[device]]\nname = \"y\"\nkind = \"cuda\"\ngpu = \"1\"\n", 1)+"on = [\"y\"]\n"))
	if err != nil {
		t.Fatal(err)
	}
	d = Divided(c, c.Policy)
	if names := d.Pool().names(); !slices.Equal(names, []string{"x/a", "y/a", "y/b"}) || !slices.Equal(d.On("a"), []int{0, 1}) || !slices.Equal(d.On("b"), []int{2}) || d.Devices[2].Whole() != "y" || d.Devices[2].GPU != "1" {
		t.Errorf("%q, a on %v, b on %v", names, d.On("a"), d.On("b"))
	}
}

func TestStaticFaults(t *testing.T) {
	change := func(from, to string) string { return strings.Replace(staticConfig, from, to, 1) }
	for name, tt := range map[string]struct{ file, want string }{
		"too much":   {change("60", "61"), "c.toml:1: policy: the shares on device add up to 101 %: lower active_thread_percentage of its services to a total of 100 %"},
		"no share":   {change("active_thread_percentage = 40\n", ""), "service[0].active_thread_percentage: is missing"},
		"no MPS":     {change("[[service]]", "[mps]\nmode = \"off\"\n[[service]]"), "mps.mode: is \"off\", but policy = \"static\" needs MPS to separate the shares"},
		"no GPU":     {change("device = \"cuda\"", "device = \"cpu\""), "policy: \"static\" needs a GPU"},
		"auto":       {change("device = \"cuda\"\n", ""), "policy: \"static\" needs a GPU"},
		"a plan":     {change("device = \"cuda\"\n", "plan = \"p.json\"\n[[device]]\nname = \"x\"\nkind = \"cuda\"\n"), "plan: assigns services that share whole devices, but with policy = "},
		"variants":   {change("model = \"m.onnx\"\n", "") + "[[service.variant]]\nmodel = \"x.onnx\"\naccuracy = 1\n", "service[1].variant: each variant would need its own share: give the service one model, or choose another policy than "},
		"not static": {strings.NewReplacer("static", "edf", "cuda", "cpu").Replace(staticConfig), "service[0].active_thread_percentage: applies only to a GPU: set device = \"cuda\", or leave it out with device = "},
	} {
		_, err := Parse("c.toml", []byte(tt.file))
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
	}
	emulated := strings.NewReplacer("\"cuda\"", "\"emulated\"\ndevice_profile = \"x\"", "m.onnx", "emulated:m").Replace(staticConfig)
	if _, err := Parse("c.toml", []byte(emulated)); err != nil {
		t.Errorf("an emulated device: %v", err)
	}
}
