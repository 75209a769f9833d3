package fit

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/overlapd/overlapd/training"
)

var (
	// errOptions is returned when options are unknown or absurd.
	errOptions = errors.New("unusable options")

	// errRows is returned when there are too few rows to fit or to test a
	// predictor, or none in which models share the device.
	errRows = errors.New("not enough rows")

	// errDiverged is returned when training leaves the finite numbers.
	errDiverged = errors.New("training diverged")
)

// How a network is trained: Options.Recipe.
const (
	// RecipeOurs has inputs from the costs of operators, Adam, and the
	// relative error as loss.
	RecipeOurs = "overlapd"

	// RecipePaper is that of the Abacus authors: the inputs of section 5.3,
	// stochastic gradient descent on the squared error, learning rate 0.001
	// with cosine decay, 250 epochs, batches of 128.
	RecipePaper = "paper"
)

// Which rows are kept aside to test with: Options.Split.
const (
	// SplitRandom keeps single rows aside.
	SplitRandom = "random"

	// SplitGrouped keeps whole configurations aside: all rows with the same
	// models, batch sizes and sequence lengths.
	SplitGrouped = "grouped"

	// SplitFolds divides the rows into folds, keeps each aside in turn, and
	// then fits the predictor to all rows.
	SplitFolds = "kfold"
)

// Limits of options.
const (
	maxHidden = 8    // layers
	maxUnits  = 1024 // in a hidden layer
	maxEpochs = 10_000
	maxFolds  = 20
)

// Options of Train and Device.
type Options struct {
	Recipe string

	// Hidden holds the units of each hidden layer.
	Hidden []int
	Seed   uint64

	// Epochs is 0 for those of the recipe.
	Epochs int

	// TestFraction of the rows, or of the configurations, is kept aside. Folds are
	// those of SplitFolds.
	Split        string
	TestFraction float64
	Folds        int

	// Compare asks for the errors of linear regression, support vector regression and
	// costs alone too, Pairs for those of one predictor for each set of models.
	Compare bool
	Pairs   bool

	// Operators are solo times by model, where they were measured. Otherwise
	// they are inferred from the groups.
	Operators map[string][]training.OperatorTimes

	// Progress is called after each epoch if it is not nil.
	Progress func(Progress)

	// allMany has no number of rows count as few.
	allMany bool
}

// Progress is how far training has come. Stage is what is being fitted; the mean loss
// is that of the Epoch that has ended, which is 0 if the stage has none.
type Progress struct {
	Stage  string
	Epoch  int
	Epochs int
	Loss   float64
	Left   time.Duration
}

// DefaultOptions returns options for a predictor as the daemon uses it.
func DefaultOptions() Options {
	return Options{
		Recipe: RecipeOurs, Hidden: []int{32, 32, 32}, Seed: 1,
		Split: SplitRandom, TestFraction: 0.2, Folds: 5,
	}
}

// DefaultDeviceOptions returns options for a device as simulations use it: a
// network larger than that of a predictor. Of the recipe, the folds and the
// comparisons a device knows nothing.
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

func (o *Options) report(p Progress) {
	if o.Progress != nil {
		o.Progress(p)
	}
}
