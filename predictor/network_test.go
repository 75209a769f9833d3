package predictor

import (
	"math"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"
)

// randomLayers returns layers of the given widths, the first of which is that
// of the inputs.
func randomLayers(rng *rand.Rand, widths ...int) []Layer {
	var layers []Layer
	for i, outputs := range widths[1:] {
		l := Layer{Inputs: widths[i], Outputs: outputs, Bias: make([]float32, outputs)}
		l.Weights = make([]float32, l.Inputs*outputs)
		scale := math.Sqrt(2 / float64(l.Inputs))
		for k := range l.Weights {
			l.Weights[k] = float32(rng.NormFloat64() * scale)
		}
		for k := range l.Bias {
			l.Bias[k] = float32(rng.NormFloat64() / 10)
		}
		layers = append(layers, l)
	}
	return layers
}

// define is what a network should give, by the definition of its layers, and
// how large the numbers were that it adds up.
func define(layers []Layer, inputs []float32) (out, size float64) {
	x := make([]float64, len(inputs))
	for i, v := range inputs {
		x[i] = float64(v)
	}
	for n, l := range layers {
		y := make([]float64, l.Outputs)
		for o := range y {
			y[o] = float64(l.Bias[o])
			for i, v := range x {
				y[o] += v * float64(l.Weights[o*l.Inputs+i])
				size = max(size, math.Abs(y[o]))
			}
			if n < len(layers)-1 {
				y[o] = max(y[o], 0)
			}
		}
		x = y
	}
	return x[0], size
}

func newNetwork(t testing.TB, layers []Layer) *Network {
	t.Helper()
	n, err := NewNetwork(layers)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func setRows(rng *rand.Rand, n *Network, rows int, zeros float64) {
	for r := range rows {
		for i := range n.Row(r) {
			n.Row(r)[i] = 0
			if rng.Float64() >= zeros {
				n.Row(r)[i] = float32(rng.NormFloat64())
			}
		}
	}
}

// Every kernel gives what the layers say, for any widths and number of rows.
func TestKernelsGiveTheDefinition(t *testing.T) {
	for name, k := range kernels() {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				widths := rapid.SliceOfN(rapid.IntRange(1, 70), 1, 4).Draw(t, "widths")
				layers := randomLayers(rand.New(rand.NewPCG(1, rapid.Uint64().Draw(t, "seed"))), append(widths, 1)...)
				n, err := NewNetwork(layers)
				if err != nil {
					t.Fatal(err)
				}
				n.forward = k
				rng := rand.New(rand.NewPCG(2, uint64(len(widths))))
				// Leave something behind that must not show up afterwards.
				setRows(rng, n, MaxRows, 0)
				n.Run(MaxRows)
				rows := rapid.IntRange(1, 9).Draw(t, "rows")
				setRows(rng, n, rows, rapid.Float64Range(0, 1).Draw(t, "zeros"))
				for r, got := range n.Run(rows) {
					want, size := define(layers, n.Row(r))
					if math.Abs(float64(got)-want) > 1e-4*(1+size) {
						t.Fatalf("row %d of %d: %v, want %v", r, rows, got, want)
					}
				}
			})
		})
	}
}

func TestNetworkWithoutHiddenLayers(t *testing.T) {
	n := newNetwork(t, []Layer{{Inputs: 3, Outputs: 1, Weights: []float32{1, 2, -4}, Bias: []float32{5}}})
	copy(n.Row(0), []float32{1, 1, 1})
	copy(n.Row(1), []float32{0, 1, 2})
	if out := n.Run(2); out[0] != 4 || out[1] != -1 {
		t.Errorf("got %v, want [4 -1]: the output has no ReLU", out)
	}
}
