package daemon

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/daemon/residents"
)

// repository loads and unloads models for clients.
type repository struct {
	// residents is nil if all models are loaded at the start.
	residents *residents.Set

	// config returns the configuration in effect, and reload applies another one.
	config func() config.Config
	reload func(next config.Config) (*config.Reloaded, error)

	// reread is [Options.Reread]. turn has a place for the one that calls it.
	reread func(model string) (config.Config, error)
	turn   chan struct{}
}

// Load loads all versions of a model, after reading it again if it is of a model repository.
func (r *repository) Load(ctx context.Context, model string) *query.Error {
	if r.residents == nil {
		return query.ErrNotLoadable
	}
	if r.reread != nil {
		if err := r.refresh(ctx, model); err != nil {
			return err
		}
	}
	return r.each(ctx, model, r.residents.Load)
}

// Unload unloads all versions of a model.
func (r *repository) Unload(ctx context.Context, model string) *query.Error {
	if r.residents == nil {
		return query.ErrNotLoadable
	}
	return r.each(ctx, model, r.residents.Unload)
}

// each changes the services of all versions of a model.
func (r *repository) each(ctx context.Context, model string, change func(ctx context.Context, service string) *query.Error) *query.Error {
	c := r.config()
	var names []string
	for _, name := range c.Names() {
		if name = serviceOf(name); query.ModelOf(name) == model && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return query.NotFound("unknown model %q", query.Cut(model))
	}
	for _, name := range names {
		if err := change(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

// serviceOf returns the service of a variant, or the service itself.
func serviceOf(name string) string {
	name, _, _ = strings.Cut(name, "/")
	return name
}

// refresh applies what has changed of a model in the model repository, one model after
// another. It continues when ctx ends.
func (r *repository) refresh(ctx context.Context, model string) *query.Error {
	select {
	case r.turn <- struct{}{}:
	case <-ctx.Done():
		return errStillLoading
	}
	ended := make(chan *query.Error, 1)
	go func() {
		ended <- r.apply(model)
		<-r.turn
	}()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		return errStillLoading
	}
}

// apply reads a model of the repository again and reloads what has changed of it.
func (r *repository) apply(model string) *query.Error {
	next, err := r.reread(model)
	var done *config.Reloaded
	if err == nil {
		done, err = r.reload(next)
	}
	switch {
	case errors.Is(err, ErrStopping):
		return query.ErrDraining
	case errors.Is(err, ErrReloading):
		return query.Unavailable(query.ReasonLoading, err.Error())
	case err != nil:
		return query.Invalid("model %q cannot be loaded: %v", query.Cut(model), err)
	}
	for name, fault := range done.Failed {
		if query.ModelOf(serviceOf(name)) == model {
			return query.Invalid("model %q cannot be loaded: %s", query.Cut(model), fault)
		}
	}
	return nil
}

// errStillLoading is the error of a request that has ended while its model loads.
var errStillLoading = query.Unavailable(query.ReasonLoading, "the model is still being loaded: ask /v2/repository/index for its state")
