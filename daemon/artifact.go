package daemon

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/rs/zerolog"
	"go.etcd.io/bbolt"

	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/daemon/loop"
	"github.com/overlapd/overlapd/internal/textfile"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/predictor"
	"github.com/overlapd/overlapd/segments/wire"
	"github.com/overlapd/overlapd/training"
)

// Limits on artifacts, and on where a daemon looks for one. A source is tried at every
// start, so it must not delay serving for long.
const (
	maxArtifactBytes   = 64 << 20
	maxSourceArtifacts = 64               // in a folder; later ones in the order of their names are not read
	sourceTimeout      = 10 * time.Second // for a whole download
)

// artifactSuffix is the extension of the files that are read from a folder.
const artifactSuffix = ".json"

// Errors of reading an artifact.
var (
	errNoArtifact      = errors.New("not a predictor artifact")
	errDamagedArtifact = errors.New("damaged predictor artifact")
)

// artifact is a predictor with all measurements behind it, in the form in which daemons
// share it. With it, a new daemon overlaps from its first query. Device is the device of
// the predictor. Models are those that the predictor knows; their hashes include the number
// of threads. The calibration is not included, because it is specific to one machine.
type artifact struct {
	Format string `json:"format"`
	Device string `json:"device"`

	// Created is when the predictor was trained.
	Created time.Time        `json:"created"`
	Models  []training.Model `json:"models"`
	Parts   []artifactPart   `json:"parts"`
	content artifactContent
}

// artifactPart is a JSON text with its hash. The hash detects damage and careless edits; it
// is not a signature.
type artifactPart struct {
	Name   string `json:"name"`
	SHA256 string `json:"sha256"`
	Data   []byte `json:"data"`
}

// artifactContent is the decoded contents of the parts.
type artifactContent struct {
	predictor predictor.File

	// solo has the tables of isolated latencies, cuts the choices of cuts. Both have the
	// keys of the state file.
	solo map[string]predictor.Snapshot
	cuts map[string]wire.CutChoice

	// groups are the measured groups, from which another predictor may be fitted.
	groups training.Dataset

	// operators is indexed by the name of the model.
	operators map[string][]training.OperatorTimes
}

// parts returns pointers to the contents by the name of their part.
func (c *artifactContent) parts() map[string]any {
	return map[string]any{"predictor": &c.predictor, "solo-times": &c.solo, "cuts": &c.cuts, "groups": &c.groups, "operators": &c.operators}
}

// artifactKind is the file format of artifacts.
var artifactKind = textfile.Kind[artifact]{
	Format: "overlapd-artifact/1", MaxBytes: maxArtifactBytes, Foreign: errNoArtifact, Damaged: errDamagedArtifact,
	Faults: (*artifact).faults, Remedy: "make one with overlapd predictor export",
}

// faults checks the parts and decodes them into the content. Everything that is wrong is
// reported together, but the number of faults is limited because a file can have any
// number.
func (a *artifact) faults() (faults []error) {
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	missing := a.content.parts()
	// Twice the known parts allow for duplicates, which get a better message below.
	if most := 2 * len(missing); len(a.Parts) > most {
		return []error{fmt.Errorf("it has %d parts instead of %d", len(a.Parts), len(missing))}
	}
	for i := range a.Parts {
		p := &a.Parts[i]
		into := missing[p.Name]
		delete(missing, p.Name)
		sum := sha256.Sum256(p.Data)
		switch {
		case into == nil:
			fault("part %.40q is unknown or duplicate", p.Name)
		case hex.EncodeToString(sum[:]) != p.SHA256:
			fault("part %s has the hash %x, not %.64s: it was changed after its export", p.Name, sum, p.SHA256)
		default:
			if err := textfile.Unmarshal(p.Data, into); err != nil {
				fault("part %s: %w", p.Name, err)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(missing)) {
		fault("part %s is missing", name)
	}
	if len(faults) > 0 {
		return faults
	}
	f, d := &a.content.predictor, &a.content.groups
	if err := errors.Join(f.Validate(), d.Check()); err != nil {
		return []error{err}
	}
	if f.Device != a.Device || d.Device != a.Device || !slices.Equal(a.Models, modelsOf(f)) {
		fault("its parts disagree: the header has %.200q and %.1000s, the predictor %.200q and %.1000s, and the groups %.200q",
			a.Device, nameModels(a.Models), f.Device, nameModels(modelsOf(f)), d.Device)
		return faults // the following checks assume these models, whose number the predictor limits
	}
	for key := range a.content.solo {
		if len(faults) <= textfile.MaxFaults && !a.holds(key) {
			fault("isolated latencies of %q, which is not one of its models on its device", key)
		}
	}
	for key := range a.content.cuts {
		if len(faults) <= textfile.MaxFaults && !a.holds(key) {
			fault("the cut of %q, which is not one of its models on its device", key)
		}
	}
	for name := range a.content.operators {
		if len(faults) <= textfile.MaxFaults && a.named(name, "") == nil {
			fault("operator times of %q, which is not one of its models", name)
		}
	}
	return faults
}

// modelsOf returns the models that a predictor knows, in the form of datasets.
func modelsOf(f *predictor.File) (list []training.Model) {
	for _, m := range f.Features.Models {
		list = append(list, training.Model{Name: m.Name, Hash: m.Hash, Operators: m.Operators})
	}
	return list
}

// nameModels lists the names of models for a message.
func nameModels(list []training.Model) string {
	var names []string
	for _, m := range list {
		names = append(names, m.Name)
	}
	return strings.Join(names, ", ")
}

// ortMark precedes the version of ONNX Runtime in the name of a measured device.
const ortMark = ", ONNX Runtime "

// holds reports whether a key of the state file belongs to the device and to one of the
// models, which are its first two elements.
func (a *artifact) holds(key string) bool {
	// A key has the device, the hash of the model and further elements, see loop.ProfileOf.
	words := strings.SplitN(key, "|", 3)
	text, _, _ := strings.Cut(a.Device, ortMark)
	return len(words) == 3 && words[0] == text &&
		slices.ContainsFunc(a.Models, func(m training.Model) bool { hash, _, _ := strings.Cut(m.Hash, "/"); return hash == words[1] })
}

// named returns the model with the given hash, or else the one with the given name, or else
// nil.
func (a *artifact) named(name, hash string) *training.Model {
	i := slices.IndexFunc(a.Models, func(m training.Model) bool { return hash != "" && m.Hash == hash })
	if i < 0 {
		i = slices.IndexFunc(a.Models, func(m training.Model) bool { return m.Name == name })
	}
	if i < 0 {
		return nil
	}
	return &a.Models[i]
}

// text describes the artifact in one sentence.
func (a *artifact) text() string {
	c := &a.content
	return fmt.Sprintf("a predictor of %s on %s, trained on %d groups at %s, with %d tables of isolated latencies, %d cuts and %d measured groups",
		nameModels(a.Models), a.Device, c.predictor.Rows, a.Created.Format(time.DateTime), len(c.solo), len(c.cuts), len(c.groups.Rows))
}

// ExportPredictor writes the newest predictor of the state file and the measurements of its
// models to a file that other daemons can import. It returns a description of what it has
// written. device is required if there are predictors of several devices.
func (s *State) ExportPredictor(path, device string) (what string, err error) {
	all, err := s.datasets.Predictors()
	if err != nil {
		return "", err
	}
	// Predictors are sorted by age, the newest first.
	all = slices.DeleteFunc(all, func(f *predictor.File) bool { return device != "" && f.Device != device })
	if len(all) == 0 {
		return "", fmt.Errorf("the state file has no predictor of %s: let overlapd serve measure until it has one, or run overlapd profile and overlapd train", cmp.Or(device, "any device"))
	}
	f := all[0]
	if i := slices.IndexFunc(all, func(other *predictor.File) bool { return other.Device != f.Device }); i > 0 {
		return "", fmt.Errorf("there are predictors of several devices, such as %q and %q: name one with --device", f.Device, all[i].Device)
	}
	a := &artifact{Format: artifactKind.Format, Device: f.Device, Created: f.Created, Models: modelsOf(f)}
	if err := s.gather(a, f); err != nil {
		return "", err
	}
	parts := a.content.parts()
	for _, name := range slices.Sorted(maps.Keys(parts)) {
		data, err := json.Marshal(parts[name])
		if err != nil {
			return "", err
		}
		sum := sha256.Sum256(data)
		a.Parts = append(a.Parts, artifactPart{Name: name, SHA256: hex.EncodeToString(sum[:]), Data: data})
	}
	return a.text(), artifactKind.WriteFile(path, a)
}

// gather collects what the state file has about the models of a predictor.
func (s *State) gather(a *artifact, f *predictor.File) error {
	c := &a.content
	// Empty maps instead of nil ones, so that the parts are objects and not null.
	c.predictor, c.solo, c.cuts = *f, map[string]predictor.Snapshot{}, map[string]wire.CutChoice{}
	groups, err := s.datasets.Dataset(a.Device, a.Models)
	if err == nil {
		c.groups = *groups
		c.operators, err = s.datasets.Operators(a.Device, a.Models)
	}
	if err == nil {
		err = eachStored(s, loop.SoloProfiles, a.holds, c.solo)
	}
	if err == nil {
		err = eachStored(s, cutChoices, a.holds, c.cuts)
	}
	return err
}

// ImportPredictor stores the contents of an artifact in the state file, where the next
// daemon finds them. It returns a description of them. An artifact that does not fit the
// configuration is rejected with all differences. If c is nil this is not checked, and the
// daemon ignores what does not fit.
func (s *State) ImportPredictor(path string, c *config.Config, o Options) (what string, err error) {
	a, err := artifactKind.ReadFile(path)
	if err != nil {
		return "", err
	}
	if c != nil {
		err = o.devices(c.Expanded(), func(p pool) error {
			_, err := p.knows(a)
			return err
		})
		if err != nil {
			return "", fmt.Errorf("%s: %w", path, err)
		}
	}
	return a.text(), s.take(a)
}

// take stores the contents of an artifact. Measurements that exist already are kept,
// because they are from this machine. Taking the same artifact again changes nothing.
func (s *State) take(a *artifact) error {
	c := &a.content
	known, err := s.datasets.Dataset(a.Device, a.Models)
	if err != nil {
		return err
	}
	// Appending known rows again would give them more weight in the next fit.
	if fresh := c.groups.Without(known); len(fresh.Rows) > 0 {
		err = s.datasets.Append(fresh)
	}
	operators, oerr := s.datasets.Operators(a.Device, a.Models)
	err = errors.Join(err, oerr)
	for name, list := range c.operators {
		for i := range list {
			has := func(o training.OperatorTimes) bool { return o.Size == list[i].Size && o.SeqLen == list[i].SeqLen }
			if err == nil && !slices.ContainsFunc(operators[name], has) {
				err = s.datasets.PutOperators(a.Device, *a.named(name, ""), list[i])
			}
		}
	}
	if err == nil {
		err = putMissing(s, loop.SoloProfiles, c.solo)
	}
	if err == nil {
		err = putMissing(s, cutChoices, c.cuts)
	}
	if err == nil {
		err = s.datasets.PutPredictor(&c.predictor)
	}
	return err
}

// putMissing stores the values whose keys do not exist yet.
func putMissing[T any](s *State, bucket string, values map[string]T) error {
	return s.db.Update(func(tx *bbolt.Tx) error {
		b := tx.Bucket([]byte(bucket))
		for key, value := range values {
			if b.Get([]byte(key)) != nil {
				continue
			}
			if err := store(b, key, value); err != nil {
				return err
			}
		}
		return nil
	})
}

// knows returns how many services on the artifact's device the artifact knows, or an error
// with all differences. The number of operators is not compared here: only the workers know
// it once they have loaded the models.
func (p pool) knows(a *artifact) (services int, err error) {
	var faults []error
	for i, u := range p {
		// Devices of one kind are compared once.
		if i > 0 && u.text == p[i-1].text {
			continue
		}
		known, err := u.knows(a)
		if err == nil {
			return known, nil
		}
		faults = append(faults, err)
	}
	return 0, errors.Join(faults...)
}

// knows is pool.knows for one device.
func (u *poolDevice) knows(a *artifact) (services int, err error) {
	name := u.text
	if u.emulation != nil {
		name = u.emulation.name
	}
	if of, _, _ := strings.Cut(a.Device, ortMark); of != name {
		return 0, fmt.Errorf("%w: it was measured on %q, and this device is %q", predictor.ErrDevice, a.Device, name)
	}
	var faults []error
	own := u.onlyOwn(u.config)
	for i := range own.Services {
		known, err := u.knowsModel(a, &own.Services[i])
		if err != nil {
			faults = append(faults, fmt.Errorf("service %s: %w", own.Services[i].Name, err))
		}
		if known {
			services++
		}
	}
	if services < leastShared {
		faults = append(faults, fmt.Errorf("%w: it covers %s, which are only %d of the services here", predictor.ErrModels, nameModels(a.Models), services))
	}
	return services, errors.Join(faults...)
}

// leastShared is the number of services that an artifact must know to be useful, because a
// group has at least two.
const leastShared = 2

// knowsModel reports whether an artifact knows the model of a service. If it has another
// model of that name, the error says what differs.
func (u *poolDevice) knowsModel(a *artifact, s *config.Service) (bool, error) {
	if u.emulation != nil {
		return a.named(u.emulation.model(s).Name, "") != nil, nil
	}
	name, err := u.measuredAs(s)
	if err != nil {
		return false, err
	}
	m := a.named(s.Name, name)
	if m == nil || m.Hash == "" || m.Hash == name {
		return m != nil, nil
	}
	had, has := models.ModelsDiffer(m.Hash, name)
	return false, fmt.Errorf("%w: its model was measured with %s, but has %s here", predictor.ErrModels, had, has)
}

// takeSource imports the artifact of predictor.source that knows most services, and of
// several such the newest. If there is none, the daemon measures, as it does without a
// source.
func (s *State) takeSource(ctx context.Context, source string, devices pool, log zerolog.Logger) {
	if source == "" {
		return
	}
	places, err := artifactsOf(ctx, source)
	if err != nil {
		log.Warn().Err(err).Msg("listing the source of predictors failed")
		return
	}
	var best *artifact
	var most int
	var faults []error
	for _, place := range places {
		a, err := readArtifact(ctx, place)
		var known int
		if err == nil {
			known, err = devices.knows(a)
		}
		switch {
		case err != nil:
			faults = append(faults, fmt.Errorf("%s: %w", redacted(place), err))
		case best == nil || known > most || known == most && a.Created.After(best.Created):
			best, most = a, known
		}
	}
	// Artifacts that do not fit are normal in a shared folder, so they are only logged.
	refused := errors.Join(faults...)
	if best == nil {
		log.Warn().Err(refused).Str("source", redacted(source)).Msg("the source has no predictor for these models on this device; groups are measured instead")
		return
	}
	if err := s.take(best); err != nil {
		log.Warn().Err(err).Msg("storing the predictor from the source failed")
		return
	}
	log.Info().Str("predictor", best.text()).AnErr("others", refused).Msg("predictor taken from the source")
}

// artifactsOf returns the source itself, or the artifacts in it if it is a folder. A file
// system that does not respond is an error after sourceTimeout.
func artifactsOf(ctx context.Context, source string) ([]string, error) {
	if config.IsURL(source) {
		return []string{source}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, sourceTimeout)
	defer cancel()
	return textfile.Within(ctx, source, func() ([]string, error) {
		// A file that cannot be accessed is reported when it is read.
		if info, err := os.Stat(source); err != nil || !info.IsDir() {
			return []string{source}, nil
		}
		places, err := filepath.Glob(filepath.Join(source, "*"+artifactSuffix))
		return places[:min(len(places), maxSourceArtifacts)], err
	})
}

// readArtifact reads a file or downloads a URL, within sourceTimeout.
func readArtifact(ctx context.Context, from string) (*artifact, error) {
	if !config.IsURL(from) {
		return artifactKind.ReadFile(from)
	}
	ctx, cancel := context.WithTimeout(ctx, sourceTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, from, nil)
	if err != nil {
		return nil, err
	}
	// The default client follows redirects and uses the proxy of the environment.
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("HTTP status %s", answer.Status)
	}
	return artifactKind.Read(answer.Body, "")
}

// redacted returns a source without its password, for the log.
func redacted(source string) string {
	if u, err := url.Parse(source); err == nil && u.User != nil {
		return u.Redacted()
	}
	return source
}
