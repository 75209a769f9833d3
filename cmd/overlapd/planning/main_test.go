package planning

import (
	"os"
	"testing"

	"github.com/overlapd/overlapd/daemon/statefile"
)

// TestMain makes this binary what checks a state file before a command opens it.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "check-state" {
		statefile.RunCheck()
		return
	}
	os.Exit(m.Run())
}
