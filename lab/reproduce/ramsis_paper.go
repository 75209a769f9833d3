package reproduce

// lateness holds the paper's percentages of late queries for a task. It has a row for each number
// of workers or load. In a row, each target has RAMSIS, Jellyfish+ and ModelSwitching.
type lateness [][]float64

// of returns the numbers of a row and a target, or nil if the paper has none.
func (l lateness) of(row, target int) []float64 {
	if row >= len(l) || 3*target+3 > len(l[row]) {
		return nil
	}
	return l[row][3*target:][:3]
}

var (
	// table3 is by number of workers, under the trace.
	table3 = map[string]lateness{
		"image": {
			{93.38, 100, 100, 81.77, 99.9, 99.9, 58.61, 99.76, 99.78},
			{0.643, 0.8607, 0.9707, 0.4408, 0.0047, 0.0121, 0.0592, 0.2152, 0.1474},
			{0.2296, 0.6137, 1.307, 0.0369, 0.3482, 1.0709, 0.1023, 0.3209, 0.2147},
			{0.05, 0.1041, 0.203, 0.0297, 0.0588, 0.1464, 0.0129, 0.0498, 0.1043},
			{0.1277, 0.4141, 0.4136, 0.1471, 0.226, 0.6517, 0.1607, 0.0863, 0.2296},
			{0.2231, 0.7234, 0.2368, 0.5036, 0.0913, 0.0937, 0.2586, 0.0556, 0.1523},
			{0.4329, 0.8292, 0.608, 0.2226, 1.046, 0.747, 0.154, 0.0824, 0.3155},
			{0.4914, 0.1652, 0.2141, 0.1132, 0.2618, 0.2861, 0.1117, 0.1972, 0.2042},
			{0.4428, 0.5811, 0.4767, 0.3213, 0.4693, 0.5, 0.4201, 0.2911, 0.1949},
		},
		"text": {
			{0.0009, 0.0032, 0.2244, 0.0001, 0.0144, 0.0727, 0.0009, 0, 0.0043},
			{0.0013, 0.6427, 0.0005, 0.0051, 0.0005, 0.0023, 0.0101, 0.0004, 0},
			{0.0157, 0.0016, 0.0013, 0.0174, 0.0386, 0.0188, 0.0024, 0.0072, 0.0083},
			{0.0354, 0.0009, 0.0406, 0.0492, 0.0081, 0.0863, 0.0119, 0.0293, 0.0964},
			{0.0557, 0.0063, 0.0615, 0.4642, 0.0892, 0.7564, 0.0591, 0.0416, 0.058},
			{0.1366, 0.0011, 0.1308, 0.0235, 0.0437, 0.098, 0.0281, 0.0029, 0.008},
			{0.068, 0.1382, 0.0775, 0.1376, 0.2673, 0.3012, 0.0049, 0.0002, 0.0165},
			{0.0122, 0.0063, 0.0549, 0.0187, 0.0163, 0.054, 0.0044, 0.0002, 0.0029},
			{0.0201, 0.6011, 0.2081, 0.0647, 0.6527, 0.0678, 0.0162, 0.0193, 0.0557},
		},
	}

	// table4 is by load. The numbers for text are missing, because the copy of the paper at hand
	// lacks rows.
	table4 = map[string]lateness{
		"image": {
			{0.0669, 0, 1.2377, 0.0252, 0.0419, 0, 0.5038, 0, 0},
			{0.1089, 0.2302, 1.318, 0.4402, 0.2306, 2.6245, 0.7513, 0.0587, 0.5998},
			{0.499, 0.0279, 0.0306, 0.0725, 0.8504, 1.4995, 0.1312, 0.209, 0.6742},
			{0.3637, 0.1087, 0.0543, 0.339, 0, 0.0084, 0.2324, 0.1366, 1.7317},
			{0.3076, 0.015, 0, 0.2876, 0.0067, 0.0284, 0.1739, 0.0938, 0.0033},
			{0.0516, 0.014, 0.0084, 0.0168, 0.134, 0.1173, 0.0112, 0.3522, 0.0028},
			{0.2288, 0.0695, 0.0084, 0.2278, 1.0823, 0.097, 0.0239, 0.4759, 0.1678},
			{0.4786, 3.6645, 0.0587, 0.0745, 0.1419, 0.0126, 0.0935, 0.6393, 0.0032},
			{2.454, 2.724, 0.0019, 0.3375, 0.6982, 0, 0.556, 0.3343, 0.1402},
			{19.46, 24.119, 97.874, 4.392, 4.2465, 0.021, 1.797, 2.8462, 0.7437},
		},
	}
)

// said is the paper's statement on RAMSIS and a baseline: the mean and the largest gain in points
// of accuracy, the percentage of additional late queries, and the percentage of workers saved at
// equal accuracy. 0 stands for no statement.
type said struct{ mean, most, late, fewer float64 }

var (
	// saidOfTrace is from section 7.1.
	saidOfTrace = map[string]said{
		"image over Jellyfish+": {4.35, 15.08, -0.07, 17.53}, "image over ModelSwitching": {4.43, 15.09, -0.04, 20.01},
		"text over Jellyfish+": {2.01, 4.55, -0.06, 31.25}, "text over ModelSwitching": {1.93, 3.85, -0.15, 25.31},
	}

	// saidOfSteady is from section 7.2, which states no largest gain for each baseline.
	saidOfSteady = map[string]said{
		"image over Jellyfish+": {4.95, 0, -0.15, 0}, "image over ModelSwitching": {4.82, 0, 0.13, 0},
		"text over Jellyfish+": {2.26, 0, -0.01, 0}, "text over ModelSwitching": {2.25, 0, -0.02, 0},
	}
)

// solvingTime is a row of table 2: the time to compute a policy.
type solvingTime struct {
	// Levels is the number of levels of slack, 0 for one at each latency.
	Levels int `json:"levels"`

	// Variable means batches of a part of the queue.
	Variable bool `json:"variable"`

	// Models is the number of variants.
	Models int `json:"models"`

	// Seconds is our time, and Paper that of the paper.
	Seconds float64 `json:"seconds"`
	Paper   float64 `json:"paper"`
}

// table2OfRAMSIS holds the rows of table 2, with the paper's times.
var table2OfRAMSIS = []solvingTime{
	{0, true, 9, 0, 3693.53}, {100, true, 9, 0, 3014.89}, {0, false, 9, 0, 115.50}, {100, false, 9, 0, 132.20}, {10, false, 9, 0, 14.62},
	{100, false, 60, 0, 1355.09}, {10, false, 60, 0, 148.87},
}
