package device

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/overlapd/overlapd/predictor"
)

func encode(t testing.TB, p *Profile) []byte {
	t.Helper()
	data, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestWriteFileRefuses(t *testing.T) {
	p := random(1)
	p.Network.Layers[0].Bias[0] = float32(math.NaN())
	path := filepath.Join(t.TempDir(), "x.device.json")
	if err := p.WriteFile(path); !errors.Is(err, errDamaged) {
		t.Errorf("a bias that is no number: %v", err)
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it was written: %v", err)
	}
}

func TestReadRefuses(t *testing.T) {
	whole := string(encode(t, random(1)))
	for _, c := range []struct {
		name, data string
		want       error
		says       string
	}{
		{"empty", "", errFormat, "it is empty"},
		{"not JSON", "device", errFormat, ""},
		{"no object", "[1]", errFormat, ""},
		{"no format", "{}", errFormat, ""},
		{"predictor", strings.Replace(whole, Format, predictor.Format, 1), errFormat, predictor.Format},
		{"other version", strings.Replace(whole, Format, "overlapd-device/9", 1), errFormat, "overlapd-device/9"},
		{"truncated", whole[:len(whole)/2], errDamaged, "truncated"},
		{"two", whole + whole, errDamaged, ""},
		{"unknown field", strings.Replace(whole, `"rows":`, `"lines":1,"rows":`, 1), errDamaged, "lines"},
		{"single spans at another clock", strings.Replace(whole, `"rows":`, `"solo":[],"rows":`, 1), errDamaged, "solo"},
		{"null", strings.Replace(whole, `"seed":0`, `"seed":null`, 1), errDamaged, "null"},
		{"too large", strings.Repeat(" ", maxFileBytes+1), errDamaged, "larger"},
	} {
		_, err := Read(strings.NewReader(c.data))
		if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %v that says %q", c.name, err, c.want, c.says)
		}
	}
}

func TestValidateRefuses(t *testing.T) {
	for name, change := range map[string]func(*Profile){
		"no rows":        func(p *Profile) { p.Rows = 0 },
		"long name":      func(p *Profile) { p.Device = strings.Repeat("x", maxText+1) },
		"name not text":  func(p *Profile) { p.Device = "\xff" },
		"no spans":       func(p *Profile) { p.Network.Spans = 0 },
		"many spans":     func(p *Profile) { p.Network.Spans = MaxSpans + 1 },
		"no models":      func(p *Profile) { p.Network.Models = nil },
		"hole in costs":  func(p *Profile) { p.Network.Models[1].Costs = p.Network.Models[1].Costs[1:] },
		"no layers":      func(p *Profile) { p.Network.Layers = nil },
		"narrow layer":   func(p *Profile) { p.Network.Layers = p.Network.Layers[1:] },
		"turned weights": func(p *Profile) { p.Network.Layers[1].Weights[0] = -1 },
		"turned last":    func(p *Profile) { p.Network.Layers[2].Weights[15] = 1 },
		"turned growing": func(p *Profile) { turn(p, true) },
		"band order":     func(p *Profile) { p.Spread.Bands[1], p.Spread.Bands[2] = p.Spread.Bands[2], p.Spread.Bands[1] },
		"band spans":     func(p *Profile) { p.Spread.Bands[0].Spans = 0 },
		"band micros":    func(p *Profile) { p.Spread.Bands[2].Micros = math.Inf(1) },
		"band of one":    func(p *Profile) { p.Spread.Bands[0].Parts = []float64{1} },
		"band falls":     func(p *Profile) { p.Spread.Bands[0].Parts = []float64{0.2, 0.1} },
		"band NaN":       func(p *Profile) { p.Spread.Bands[0].Parts[2] = math.NaN() },
		"many bands":     func(p *Profile) { p.Spread.Bands = make([]SpreadBand, maxBands+1) },
		"slow NaN":       func(p *Profile) { p.Spread.Slow = math.NaN() },
		"solo of none":   func(p *Profile) { p.Solo = []SoloTime{{Model: "e", Size: 1, Micros: 1}} },
		"solo twice":     func(p *Profile) { withSolo(p); p.Solo[1] = p.Solo[0] },
		"solo of zero":   func(p *Profile) { withSolo(p); p.Solo[1].Micros = 0 },
		"solo size":      func(p *Profile) { withSolo(p); p.Solo[1].Size = 0 },
		"solo NaN":       func(p *Profile) { withSolo(p); p.Solo[1].Groups = math.NaN() },
		"many solo":      func(p *Profile) { p.Solo = make([]SoloTime, maxSoloTimes+1) },
		"target of none": func(p *Profile) { p.Targets = map[string]float64{"e": 1} },
		"target NaN":     func(p *Profile) { p.Targets = map[string]float64{"a": math.NaN()} },
		"test NaN":       func(p *Profile) { p.Test.Alone.MAPE = math.NaN() },
		"checks NaN":     func(p *Profile) { p.Checks.Latency = math.NaN() },
	} {
		p := random(1)
		change(p)
		if err := p.Validate(); !errors.Is(err, errDamaged) {
			t.Errorf("%s: Validate() = %v, want that it is damaged", name, err)
		}
		if _, err := NewModel(p); err == nil {
			t.Errorf("%s: put to use", name)
		}
	}
	p := random(1)
	turn(p, false)
	if err := p.Validate(); err != nil {
		t.Errorf("weights of inputs that count no operators may have any sign: %v", err)
	}
}

// turn turns one weight around, of an input that counts operators or not.
func turn(p *Profile, growing bool) {
	for i, g := range NewEncoder(p.Network.Models).Growing {
		if g == growing {
			p.Network.Layers[0].Weights[i] = -p.Network.Layers[0].Weights[i] - 1
			return
		}
	}
}

// Whatever is read is refused with one of the two errors, or keeps the
// promises.
func FuzzRead(f *testing.F) {
	p := random(1)
	p.Network.Models = []predictor.FeatureModel{model(rand.New(rand.NewPCG(1, 2)), "a", 2, []int{1, 4}, []int{0})}
	p.Network.Layers = layers(rand.New(rand.NewPCG(1, 2)), NewEncoder(p.Network.Models), 2)
	p.Solo = []SoloTime{{Model: "a", Size: 4, Micros: 20_000}}
	small := encode(f, p)
	if _, err := Read(bytes.NewReader(small)); err != nil {
		f.Fatal(err)
	}
	f.Add(small)
	f.Add(small[:len(small)/3])
	f.Add(bytes.ReplaceAll(small, []byte(`"micros":20000`), []byte(`"micros":1e308`)))
	f.Add([]byte(`{"format":"overlapd-device/1"}`))
	f.Add([]byte(`{}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := Read(bytes.NewReader(data))
		if err != nil {
			if !errors.Is(err, errFormat) && !errors.Is(err, errDamaged) {
				t.Errorf("another error: %v", err)
			}
			return
		}
		keepsPromises(t, newModel(t, p), 1, 20)
	})
}
