package predictor

// tile is how many outputs the plain kernel keeps in registers.
const tile = 8

// plain is the kernel for every machine: row by row, without what is zero. Of
// what a hidden layer leaves, half is.
func plain(l *dense, s *lanes, x, y matrix, rows int) {
	for r := range rows {
		values, begins := s.gatherRow(x.row(r)[:l.inputs])
		out := y.row(r)
		for p := range l.panels {
			weights := l.weights[p*l.inputs*panel:][:l.inputs*panel]
			for o := 0; o < panel; o += tile {
				at := p*panel + o
				plainTile(values, begins, weights[o:], (*[tile]float32)(l.bias[at:]), (*[tile]float32)(out[at:]))
			}
		}
	}
}

func plainTile(values []float32, begins []int32, weights []float32, bias, out *[tile]float32) {
	a0, a1, a2, a3, a4, a5, a6, a7 := bias[0], bias[1], bias[2], bias[3], bias[4], bias[5], bias[6], bias[7]
	begins = begins[:len(values)]
	for i, v := range values {
		w := (*[tile]float32)(weights[begins[i]:])
		a0 += v * w[0]
		a1 += v * w[1]
		a2 += v * w[2]
		a3 += v * w[3]
		a4 += v * w[4]
		a5 += v * w[5]
		a6 += v * w[6]
		a7 += v * w[7]
	}
	out[0], out[1], out[2], out[3] = max(a0, 0), max(a1, 0), max(a2, 0), max(a3, 0)
	out[4], out[5], out[6], out[7] = max(a4, 0), max(a5, 0), max(a6, 0), max(a7, 0)
}
