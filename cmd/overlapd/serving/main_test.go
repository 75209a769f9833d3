package serving

import (
	"os"
	"testing"

	"github.com/spf13/cobra"

	"github.com/overlapd/overlapd/internal/cli"
)

// TestMain makes this binary overlapd where a test starts it as a child.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && (os.Args[1] == checkStateName || os.Getenv("OVERLAPD_TEST_FIT") != "") {
		cli.Main(root(), func(error) int { return 1 })
		return
	}
	os.Exit(m.Run())
}

// root returns a program with the commands of this package.
func root() *cobra.Command {
	cmd := &cobra.Command{Use: "overlapd"}
	cmd.AddCommand(Commands()...)
	cli.Finish(cmd, "", nil, nil)
	return cmd
}
