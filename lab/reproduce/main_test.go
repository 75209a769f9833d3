package reproduce

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// fittedByTests is the folder of what tests fit, see quick.
var fittedByTests string

func TestMain(m *testing.M) {
	var err error
	if fittedByTests, err = os.MkdirTemp("", "fitted"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		os.RemoveAll(fittedByTests)
		os.Exit(code)
	}))
}
