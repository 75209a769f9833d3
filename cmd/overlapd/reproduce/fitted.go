package reproduce

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/overlapd/overlapd/device"
	"github.com/overlapd/overlapd/predictor"
	"github.com/overlapd/overlapd/training"
	"github.com/overlapd/overlapd/training/fit"
)

// fittedFolder holds, below the folder for results, what was fitted.
const fittedFolder = "fitted"

const (
	folderMode = 0o755
	fileMode   = 0o644
)

// Seconds or so that fitting takes, for the progress.
const (
	deviceWork    = 60
	predictorWork = 20
	errorsWork    = 60
	foldsWork     = 120
)

// stock is what was measured of one set of deployments, halved, and what was
// fitted to the halves.
type stock struct {
	name     string
	measured *training.Dataset
	half     *training.Dataset // for predictors
	profile  *device.Profile
	files    map[string]*predictor.File // by recipe
	solo     []training.SoloTime
	gather   func() // what the jobs left
}

// fitter fits, or reads what was fitted before to the same data with the same
// options by the same build.
type fitter struct {
	options *Options
	data    *data
}

// path names a fitted file by all that it depends on.
func (f *fitter) path(what, suffix string) string {
	key := fmt.Sprintf("%s %s %s %d %d", what, f.data.sha256, f.options.Commit, f.options.Seed, f.options.Epochs)
	sum := sha256.Sum256([]byte(key))
	return filepath.Join(f.options.Out, fittedFolder, what+"-"+hex.EncodeToString(sum[:6])+suffix)
}

// stockUp adds jobs that fit a device to one half of a dataset, and predictors
// to the other.
func (f *fitter) stockUp(p *plan, name string, d *training.Dataset, solo []training.SoloTime) *stock {
	forDevice, forPredictors := halve(d, f.options.Seed)
	s := &stock{name: name, measured: d, half: forPredictors, solo: solo, files: map[string]*predictor.File{}}
	p.add("fitting the device, "+name, deviceWork, func(ctx context.Context, _ *lane) (err error) {
		s.profile, err = f.device(ctx, name, forDevice, solo)
		return err
	})
	var files [2]*predictor.File
	for i, recipe := range []string{fit.RecipeOurs, fit.RecipePaper} {
		p.add("fitting a predictor, "+name, predictorWork, func(ctx context.Context, _ *lane) (err error) {
			files[i], err = f.predictor(ctx, name, forPredictors, recipe)
			return err
		})
	}
	s.gather = func() { s.files[recipeOurs], s.files[recipePaper] = files[0], files[1] }
	return s
}

func (f *fitter) device(ctx context.Context, name string, rows *training.Dataset, solo []training.SoloTime) (*device.Profile, error) {
	path := f.path("device-"+name, ".device.json")
	if exists(path) {
		return device.ReadFile(path)
	}
	o := fit.DefaultDeviceOptions()
	o.Seed = f.options.Seed
	if f.options.Epochs > 0 {
		o.Epochs = f.options.Epochs
	}
	profile, _, err := fit.Device(ctx, rows, solo, o)
	if err != nil {
		return nil, fmt.Errorf("device of the %s: %w", name, err)
	}
	return profile, profile.WriteFile(path)
}

func (f *fitter) predictor(ctx context.Context, name string, rows *training.Dataset, recipe string) (*predictor.File, error) {
	path := f.path("predictor-"+name+"-"+string(recipe), ".predictor.json")
	if exists(path) {
		return predictor.ReadFile(path)
	}
	file, _, err := fit.Train(ctx, rows, f.train(recipe))
	if err != nil {
		return nil, fmt.Errorf("predictor of the %s: %w", name, err)
	}
	return file, file.WriteFile(path)
}

func (f *fitter) train(recipe string) fit.Options {
	o := fit.DefaultOptions()
	o.Recipe, o.Seed, o.Epochs = recipe, f.options.Seed, f.options.Epochs
	return o
}

// keep makes v, or reads it back if it was made before.
func keep[T any](f *fitter, what string, make func() (*T, error)) (*T, error) {
	path := f.path(what, ".json")
	if data, err := os.ReadFile(path); err == nil {
		v := new(T)
		if err := json.Unmarshal(data, v); err != nil {
			return nil, fmt.Errorf("%s: %w; remove it to have it made again", path, err)
		}
		return v, nil
	}
	v, err := make()
	if err != nil {
		return nil, err
	}
	data, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	return v, os.WriteFile(path, append(data, '\n'), fileMode)
}
