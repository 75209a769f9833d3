// Overlapd-lab measures and compares what overlapd does: policies in virtual time, published papers,
// modelled devices, and the cost of cutting models. Nothing that serves depends on it.
package main

import (
	"slices"

	"github.com/spf13/cobra"

	"github.com/overlapd/overlapd/internal/cli"
	"github.com/overlapd/overlapd/models/zoo"
)

func main() { cli.Main(root(), func(error) int { return 1 }) }

func root() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "overlapd-lab",
		Short: "Compare scheduling policies, reproduce papers, and measure what overlapd costs",
		Long: `overlapd-lab is for those who change overlapd or check its claims. It runs the daemon's
scheduler in virtual time on modelled devices, reproduces the figures of published
papers, and measures what running a model operator by operator costs.`,
	}
	const measuring = "Measuring and comparing"
	cli.Topic(cmd, measuring, simulateCommand(), residencyCommand(),
		cli.Group("device", "Fit a device profile to measurements, to simulate or emulate the device", deviceFitCommand(), deviceShowCommand()),
		cli.Group("reproduce", "Reproduce the figures of published papers", reproduceAbacusCommand(), reproduceSymphonyCommand(), reproduceShepherdCommand(), reproduceRAMSISCommand(), reproducePPipeCommand()),
		cli.Group("bench", "Measure what cutting models costs", benchEngineCommand(), cli.ProbeCommand()))
	cmd.AddCommand(cli.ManCommand(""))
	cli.Finish(cmd, measuring, map[string]cobra.CompletionFunc{
		"arrivals": cli.Words("poisson", "constant", "gamma"),
		"dispatch": cli.Words("round-robin", "random", "least-loaded", "pool", "split"),
		"format":   cli.Words("abacus", formatLinear),
		"knows":    cli.Words("all", "order", "nothing"),
		"model":    cobra.FixedCompletions(zoo.Names(), cobra.ShellCompDirectiveDefault),
		"policy":   cli.Words(slices.Concat(policyNames())...),
		"device":   cli.Files("json"), "predictor": cli.Files("json"), "scenario": cli.Files("json"),
		"split": cli.Words("random", "grouped"),
	}, map[string]cobra.CompletionFunc{"overlapd-lab device show": cli.Files("json")})
	return cmd
}
