package fit

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/overlapd/overlapd/training"
)

// The errors of fitting.
var (
	// errOptions is returned when options are unknown or out of range.
	errOptions = errors.New("unusable options")

	// errRows is returned when there are too few rows to fit or test a predictor, or when no row
	// has several models.
	errRows = errors.New("not enough rows")

	// errDiverged is returned when the loss is no longer finite.
	errDiverged = errors.New("training diverged")
)

// The values of Options.Recipe, which says how a network is trained.
const (
	// RecipeOurs uses inputs derived from the costs of operators, Adam, and the relative error as
	// the loss.
	RecipeOurs = "overlapd"

	// RecipePaper is the recipe of the Abacus authors: the inputs of section 5.3, stochastic
	// gradient descent on the squared error, a learning rate of 0.001 with cosine decay, 250
	// epochs, and batches of 128.
	RecipePaper = "paper"
)

// The values of Options.Split, which says which rows are held out for testing.
const (
	// SplitRandom holds out single rows.
	SplitRandom = "random"

	// SplitGrouped holds out whole configurations: all rows with the same models, batch sizes and
	// sequence lengths.
	SplitGrouped = "grouped"

	// SplitFolds divides the rows into folds and holds out each of them in turn. The final
	// predictor is fitted to all rows.
	SplitFolds = "kfold"
)

// Limits of options.
const (
	// maxHidden limits the hidden layers, and maxUnits the units of each.
	maxHidden = 8
	maxUnits  = 1024
	maxEpochs = 10_000
	maxFolds  = 20
)

// Options are the options of Train and Device.
type Options struct {
	Recipe string

	// Hidden holds the number of units of each hidden layer.
	Hidden []int
	Seed   uint64

	// Epochs is 0 for the number that the recipe chooses.
	Epochs int

	// TestFraction is the fraction of the rows, or of the configurations, that is held out. Folds
	// is the number of folds of SplitFolds.
	Split        string
	TestFraction float64
	Folds        int

	// Compare adds the errors of linear regression, support vector regression and costs alone.
	// Pairs adds the errors of separate predictors for each set of models.
	Compare bool
	Pairs   bool

	// Operators holds measured isolated latencies of operators by model. Without them, they are
	// inferred from the groups.
	Operators map[string][]training.OperatorTimes

	// Progress, if not nil, is called after each epoch.
	Progress func(Progress)

	// allMany turns off the special treatment of few rows.
	allMany bool
}

// Progress describes how far training has come. Stage names what is being fitted. Loss is the
// mean loss of Epoch, the last complete one, which is 0 for a stage without epochs.
type Progress struct {
	Stage  string
	Epoch  int
	Epochs int
	Loss   float64
	Left   time.Duration
}

// DefaultOptions returns the options for a predictor that a daemon uses.
func DefaultOptions() Options {
	return Options{
		Recipe: RecipeOurs, Hidden: []int{32, 32, 32}, Seed: 1,
		Split: SplitRandom, TestFraction: 0.2, Folds: 5,
	}
}

// DefaultDeviceOptions returns the options for a device that simulations use, with a larger
// network than that of a predictor. Recipe, Folds, Compare and Pairs do not apply to a device.
func DefaultDeviceOptions() Options {
	o := DefaultOptions()
	o.Hidden, o.TestFraction = []int{64, 64, 64}, 0.1
	return o
}

// Validate returns an error that wraps [errOptions] and names every fault.
func (o *Options) Validate() error {
	var faults []error
	fault := func(bad bool, format string, args ...any) {
		if bad {
			faults = append(faults, fmt.Errorf(format, args...))
		}
	}
	fault(o.Recipe != RecipeOurs && o.Recipe != RecipePaper, "recipe %q is neither %s nor %s", o.Recipe, RecipeOurs, RecipePaper)
	fault(!slices.Contains([]string{SplitRandom, SplitGrouped, SplitFolds}, o.Split), "split %q is none of %s, %s and %s", o.Split, SplitRandom, SplitGrouped, SplitFolds)
	fault(len(o.Hidden) == 0 || len(o.Hidden) > maxHidden, "%d hidden layers, not of 1 to %d", len(o.Hidden), maxHidden)
	for _, units := range o.Hidden {
		fault(units < 1 || units > maxUnits, "a hidden layer of %d units, not of 1 to %d", units, maxUnits)
	}
	fault(o.Epochs < 0 || o.Epochs > maxEpochs, "%d epochs, the limit is %d", o.Epochs, maxEpochs)
	fault(!(o.TestFraction >= 0.01 && o.TestFraction <= 0.9), "%v of the rows to test with, not 0.01 to 0.9", o.TestFraction)
	fault(o.Split == SplitFolds && (o.Folds < 2 || o.Folds > maxFolds), "%d folds, not of 2 to %d", o.Folds, maxFolds)
	if len(faults) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %w", errOptions, errors.Join(faults...))
}

// report calls Progress if it is set.
func (o *Options) report(p Progress) {
	if o.Progress != nil {
		o.Progress(p)
	}
}
