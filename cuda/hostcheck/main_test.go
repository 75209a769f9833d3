package hostcheck

import (
	"os"
	"testing"

	"github.com/overlapd/overlapd/internal/fakes/fakemps"
)

func TestMain(m *testing.M) {
	fakemps.Take() // this binary is MPS's programs, too
	os.Exit(m.Run())
}
