package query

import (
	"cmp"
	"context"
	"slices"
	"strings"
)

// Versions returns the services of a model, the highest version first.
func (s *Server) Versions(model string) []*Service {
	all := slices.DeleteFunc(slices.Clone(s.Services()), func(v *Service) bool { return ModelOf(v.Name) != model })
	slices.SortFunc(all, func(a, b *Service) int { return cmp.Compare(b.number(), a.number()) })
	return all
}

// versionNumbers returns the versions of services.
func versionNumbers(all []*Service) []string {
	list := make([]string, len(all))
	for i, v := range all {
		list[i] = v.Version
	}
	return list
}

// Find returns the service of a model and version. A nil version stands for the highest.
// Errors have status 404.
func (s *Server) Find(name, version []byte) (*Service, *Error) {
	// Nearly every request ends here: a configuration rarely has several versions.
	v := s.Service(name)
	if v != nil && (version == nil || string(version) == v.Version) {
		return v, nil
	}
	all := s.Versions(string(name))
	for _, v := range all {
		if version == nil || string(version) == v.Version {
			return v, nil
		}
	}
	switch len(all) {
	case 0:
		if v == nil {
			return nil, NotFound("unknown model %q", Cut(name))
		}
		all = []*Service{v} // the name has the version itself
		fallthrough
	case 1:
		return nil, NotFound("model %q has only version %s", Cut(name), all[0].Version)
	}
	return nil, NotFound("model %q has only the versions %s", Cut(name), strings.Join(versionNumbers(all), ", "))
}

// ErrNotLoadable is the error for loading or unloading a model while the configuration
// loads all of them.
var ErrNotLoadable = Invalid("models are loaded and unloaded by the daemon: to do it by request, set load = %q in the configuration, or start with --model-control-mode explicit", "request")

// errOverride is the error for a load request that brings its own configuration or files.
var errOverride = notOffered("a load request cannot bring a configuration or files: change config.pbtxt or the file in the model repository, then load the model without parameters")

// parameterDependents asks to unload the models that an ensemble calls. There are no
// ensembles, so no model depends on another.
const parameterDependents = "unload_dependents"

// Change loads all versions of a model, or unloads them, and returns when that is done.
// given are the names of the parameters in the request.
func (s *Server) Change(ctx context.Context, model string, load bool, given []string) *Error {
	for _, p := range given {
		switch {
		case load && (p == "config" || strings.HasPrefix(p, "file:")):
			return errOverride
		case p != parameterDependents:
			return Invalid("unknown parameter %q: leave it out", Cut(p))
		}
	}
	if s.Repository == nil {
		return ErrNotLoadable
	}
	if load {
		return s.Repository.Load(ctx, model)
	}
	return s.Repository.Unload(ctx, model)
}

// Index returns the repository index, with an entry for each version. With ready set, it
// only lists those that can answer.
func Index(services []*Service, ready bool) any {
	type entry struct {
		Name    string `json:"name"`
		Version string `json:"version"`
		State   string `json:"state"`
		Reason  string `json:"reason"`
	}
	list := []entry{}
	for _, s := range services {
		e := entry{Name: ModelOf(s.Name), Version: s.Version, State: "READY"}
		if s.Asleep != nil || !s.Ready() {
			if ready {
				continue
			}
			if s.Asleep != nil {
				e.State, e.Reason = "UNAVAILABLE", ReasonUnloaded
			} else if e.State, e.Reason = "UNAVAILABLE", s.NotReady().Reason; e.Reason == ReasonLoading {
				e.State = "LOADING"
			}
		}
		list = append(list, e)
	}
	return list
}
