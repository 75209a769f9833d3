package main

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/overlapd/overlapd/predictor"
	"github.com/overlapd/overlapd/training"
)

func datasetShowCommand() *cobra.Command {
	var state stateOptions
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "show",
		Short: "Show what is measured, and which predictors were trained",
		Example: `  overlapd dataset show
  overlapd dataset show --config overlapd.toml --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			file, err := state.open(true)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, file.Close()) }()
			shown, err := showStore(file.Datasets())
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(cmd.OutOrStdout(), shown)
			}
			return shown.writeText(cmd.OutOrStdout())
		},
	}
	state.flags(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return cmd
}

// shown is what a state file has for training.
type shown struct {
	Rows       int                `json:"rows"`
	Sets       []training.Summary `json:"sets"`
	Predictors []shownPredictor   `json:"predictors"` // newest first
}

type shownPredictor struct {
	Created  time.Time `json:"created"`
	Device   string    `json:"device"`
	Recipe   string    `json:"recipe"`
	Models   []string  `json:"models"`
	Rows     int       `json:"rows"`
	MAPETest float64   `json:"mape_test"` // percent
}

func showStore(store *training.Store) (shown, error) {
	s := shown{Sets: []training.Summary{}, Predictors: []shownPredictor{}}
	sets, err := store.List()
	if err != nil {
		return s, err
	}
	for _, set := range sets {
		s.Rows += set.Rows
		s.Sets = append(s.Sets, set)
	}
	files, err := store.Predictors()
	for _, f := range files {
		s.Predictors = append(s.Predictors, newShownPredictor(f))
	}
	return s, err
}

func newShownPredictor(f *predictor.File) shownPredictor {
	p := shownPredictor{Created: f.Created, Device: f.Device, Recipe: f.Recipe, Rows: f.Rows, MAPETest: f.Test.MAPE}
	for _, m := range f.Features.Models {
		p.Models = append(p.Models, m.Name)
	}
	return p
}

func (s shown) writeText(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "SET\tDEVICE\tMODELS\tROWS\tBATCH SIZES\tSEQUENCES\tMEDIAN\tON DEVICE\tSPREAD")
	for _, set := range s.Sets {
		took := time.Duration(set.Median * float64(time.Microsecond)).Round(time.Microsecond)
		fmt.Fprintf(t, "%s\t%s\t%s\t%d\t%s\t%s\t%v\t%s\t%.1f %%\n", set.ID, orUnknown(set.Device), set.Name(), set.Rows,
			numbers(set.Sizes), numbers(set.SeqLens), took, share(set.Share), 100*set.Spread)
	}
	fmt.Fprintf(t, "\t\t%d sets\t%d\n", len(s.Sets), s.Rows)
	if len(s.Predictors) > 0 {
		fmt.Fprintln(t, "\nPREDICTOR\tDEVICE\tMODELS\tROWS\tRECIPE\tERROR")
	}
	for _, p := range s.Predictors {
		fmt.Fprintf(t, "%s\t%s\t%s\t%d\t%s\t%.1f %%\n", p.Created.UTC().Format(time.DateTime), orUnknown(p.Device),
			strings.Join(p.Models, ", "), p.Rows, p.Recipe, p.MAPETest)
	}
	return t.Flush()
}

func orUnknown(device string) string {
	if device == "" {
		return "unknown"
	}
	return device
}

// numbers joins numbers by commas, "-" if there are none.
func numbers(list []int) string {
	if len(list) == 0 {
		return "-"
	}
	return strings.ReplaceAll(strings.Trim(fmt.Sprint(list), "[]"), " ", ",")
}

// share returns a part of a whole in percent, "-" if it is unknown.
func share(part float64) string {
	if part == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f %%", 100*part)
}
