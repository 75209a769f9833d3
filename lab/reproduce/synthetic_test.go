package reproduce

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// formula is what the tests' device does: each model has so many operators,
// each of which takes so long, and a span overlaps half of what is shorter.
var formula = []struct {
	model     string
	operators int
	micros    float64
}{
	{"resnet50", 2, 2700}, {"resnet101", 3, 3300}, {"resnet152", 4, 3900}, {"vgg19", 2, 1800}, {"bert", 2, 2600},
}

// drawnSpan is a span of a model, as a part of a line.
func drawnSpan(random *rand.Rand, at int) (text string, micros float64) {
	f := formula[at]
	start, end := 0, f.operators
	switch random.IntN(4) {
	case 0:
		start = random.IntN(f.operators)
	case 1:
		end = 1 + random.IntN(f.operators)
	case 2:
		end = 0
	}
	size, seqLen := pairSizes[random.IntN(len(pairSizes))], 0
	micros = float64(end-start) * f.micros * (1 + float64(size)/32)
	if f.model == sequenceModel {
		seqLen = pairSeqLens[random.IntN(len(pairSeqLens))]
		micros *= 1 + float64(seqLen)/128
	}
	return fmt.Sprintf("%s,%d,%d,%d,%d", f.model, start, end, size, seqLen), max(micros, 0)
}

// drawnGroups is a file of groups of these models.
func drawnGroups(rows int, seed uint64, of ...int) string {
	random := rand.New(rand.NewPCG(seed, 1))
	var b strings.Builder
	b.WriteString(strings.Repeat("model,start,end,bs,seq_len,", len(of)) + "median,mean,std\n")
	for n := 0; n < rows; {
		var parts []string
		longest, sum := 0.0, 0.0
		for _, at := range of {
			text, micros := drawnSpan(random, at)
			parts = append(parts, text)
			longest, sum = max(longest, micros), sum+micros
		}
		if sum == 0 {
			continue
		}
		n++
		took := longest + (sum-longest)/2
		fmt.Fprintf(&b, "%s,%.1f,%.1f,%.1f\n", strings.Join(parts, ","), took, took*1.001, took*0.01)
	}
	return b.String()
}

// drawnData writes a folder of data and returns its path.
func drawnData(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	put := func(name, text string) {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		writeFile(t, path, text)
	}
	put("abacus-a100/pairs/a.csv", drawnGroups(165, 1, 0, 1))
	put("abacus-a100/pairs/b.csv", drawnGroups(165, 2, 1, 4))
	put("abacus-a100/quad/all.csv", drawnGroups(165, 3, 1, 2, 3, 4))
	put("abacus-a100/"+calmFile, drawnResults("Res50+Res101", "Res101+Bert"))
	put("abacus-a100/"+fullFile, drawnResults("Res50Res101", "Res101Bert"))
	put(loadsFile, "minute,load\n0,900\n1,960\n")
	return dir
}

func drawnResults(names ...string) string {
	var b strings.Builder
	b.WriteString(strings.Join(authorsColumns(), ",") + "\n")
	for _, n := range names {
		b.WriteString(n + ",1.2,600,0.5,1.3,500,0.6,1.2,610,0.45,1,900,0.2\n")
	}
	return b.String()
}
