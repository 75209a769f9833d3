package reproduce

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/overlapd/overlapd/executor/emulated/device"
	"github.com/overlapd/overlapd/predictor"
	"github.com/overlapd/overlapd/training"
	"github.com/overlapd/overlapd/training/fit"
)

// fittedFolder holds fitted files, below the folder for results.
const fittedFolder = "fitted"

// Rough durations of fitting in seconds, for the progress.
const (
	deviceWork    = 60
	predictorWork = 20
	errorsWork    = 60
	foldsWork     = 120
)

// stock is the data measured for a kind of deployments, divided into halves, and what was fitted to
// the halves.
type stock struct {
	// name consists of the kind and the clock.
	name string

	// measured holds all groups, before they were halved.
	measured *training.Dataset

	// half is the half for predictors.
	half *training.Dataset

	// profile is the device, once it is fitted.
	profile *device.Profile

	// files holds the predictors by recipe.
	files map[string]*predictor.File

	// solo holds the isolated latencies that the groups were calibrated to.
	solo []training.SoloTime
}

// stockKey identifies a stock by its kind and its clock.
type stockKey struct {
	// kind is pairsStock or quadStock.
	kind string

	// clock is the index of data.groups.
	clock int
}

// stock returns the stock of a kind at a clock, or nil if there are no such groups.
func (r *reproduction) stock(kind string, clock int) *stock {
	key := stockKey{kind, clock}
	if r.stocks[key] == nil && clock < len(r.data.groups) && r.data.groups[clock].kinds[kind] != nil {
		r.stocks[key] = r.stockUp(kind, &r.data.groups[clock])
	}
	return r.stocks[key]
}

// stockUp plans to fit a device to one half of the groups, and predictors to the other.
func (r *reproduction) stockUp(kind string, of *groups) *stock {
	d, name := of.kinds[kind], kind+", "+of.clock
	// The seed of the options determines the halves, so that other seeds fit other devices.
	forDevice, forPredictors := halve(d, r.options.Seed)
	s := &stock{name: name, measured: d, half: forPredictors, files: map[string]*predictor.File{}}
	if of.clock == servingClock {
		s.solo = r.data.soloOf(d)
	}
	file := strings.NewReplacer(", ", "-", " ", "-").Replace(name)
	r.fitting.add("fitting the device, "+name, deviceWork, func(ctx context.Context, _ *lane) (err error) {
		s.profile, err = kept(r, "device-"+file, ".device.json", device.ReadFile, func() (*device.Profile, error) {
			o := fit.DefaultDeviceOptions()
			o.Seed = r.options.Seed
			if r.options.Epochs > 0 {
				o.Epochs = r.options.Epochs
			}
			profile, _, err := fit.Device(ctx, forDevice, nil, o)
			return profile, err
		})
		return err
	})
	for _, recipe := range []string{fit.RecipeOurs, fit.RecipePaper} {
		// Jobs of figures take the pointer before the predictor is fitted.
		into := new(predictor.File)
		s.files[recipe] = into
		r.fitting.add("fitting a predictor, "+name, predictorWork, func(ctx context.Context, _ *lane) error {
			fitted, err := kept(r, "predictor-"+file+"-"+recipe, ".predictor.json", predictor.ReadFile, func() (*predictor.File, error) {
				fitted, _, err := fit.Train(ctx, forPredictors, r.train(recipe))
				return fitted, err
			})
			if err == nil {
				*into = *fitted
			}
			return err
		})
	}
	return s
}

// train returns the options of fitting a predictor.
func (r *reproduction) train(recipe string) fit.Options {
	o := fit.DefaultOptions()
	o.Recipe, o.Seed, o.Epochs = recipe, r.options.Seed, r.options.Epochs
	return o
}

// kept reads a file that was made of the same data, with the same options and by the same build. If
// there is none, it makes the file and writes it for later runs.
func kept[T interface{ WriteFile(path string) error }](r *reproduction, what, suffix string, read func(path string) (T, error), make func() (T, error)) (T, error) {
	path := r.path(what, suffix)
	if exists(path) {
		v, err := read(path)
		if err != nil {
			err = fmt.Errorf("%w; remove it, and the next run makes it again", err)
		}
		return v, err
	}
	v, err := make()
	if err != nil {
		return v, fmt.Errorf("%s: %w", what, err)
	}
	return v, v.WriteFile(path)
}

// path returns a name for a fitted file that identifies everything that the file depends on.
func (r *reproduction) path(what, suffix string) string {
	// A file made from other data, by another build or with other options has another name.
	key := fmt.Sprintf("%s %s %s %d %d", what, r.data.sha256, r.options.Commit, r.options.Seed, r.options.Epochs)
	sum := sha256.Sum256([]byte(key))
	return filepath.Join(r.options.Out, fittedFolder, what+"-"+hex.EncodeToString(sum[:6])+suffix)
}
