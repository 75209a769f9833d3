package daemon

import (
	"errors"
	"fmt"

	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/daemon/loop"
	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/text/export"
)

// CheckTexts reads the tokenizers of the services whose model is a file, and the other
// files in its folder. It returns what each of them answers to text. The error is a [config.Faults].
func CheckTexts(c *config.Config) (notes []string, err error) {
	services := c.Expanded().Services
	var files []*config.Service
	for i := range services {
		if config.IsPath(services[i].Model) && !c.Emulated() {
			files = append(files, &services[i])
		}
	}
	warnings, err := readTexts(files, func(s *config.Service) (string, error) { return s.Model, nil })
	for _, s := range files {
		if s.Text != nil {
			notes = append(notes, describeText(s))
		}
	}
	for _, w := range warnings {
		notes = append(notes, w.Error())
	}
	return notes, err
}

// describeText describes what a service answers to text.
func describeText(s *config.Service) string {
	t, scaled := s.Text, "not normalized"
	if t.Normalize {
		scaled = "normalized"
	}
	text := fmt.Sprintf("service %s takes text, %d tokens at most; pooling is %s, %s", s.Name, t.Longest(), t.Pooling, scaled)
	if longest := t.Longest(); t.Limit > longest {
		text += fmt.Sprintf("; longer texts are truncated, although the model takes %d: add to seq_lens", t.Limit)
	}
	return text
}

// readTexts reads the tokenizer of each service that has one, and what else lies beside its
// model. That of a service whose model is on disk is read when the model is loaded. by is nil
// before there is a loop.
func (p pool) readTexts(c *config.Config, by *loop.Backend) error {
	if p[0].emulation != nil {
		return nil // its models compute nothing
	}
	var all []*config.Service
	for i := range c.Services {
		s := &c.Services[i]
		now := (*query.Service)(nil)
		if by != nil {
			now = by.Service([]byte(s.Name))
		}
		if c.Stays(s) || now != nil && now.Asleep == nil {
			all = append(all, s)
		}
	}
	warnings, err := readTexts(all, func(s *config.Service) (string, error) { return p[0].model(s.Model) })
	for _, w := range warnings {
		p[0].log.Warn().Msg(w.Error())
	}
	return err
}

// readTexts sets the Text of services. A tokenizer that the configuration names must be usable.
// One that merely lies beside a model need not be: it is a warning, and the service takes
// tensors only, as it would without the file. Variants of a service must have the same,
// because a text is tokenized before one is chosen.
func readTexts(services []*config.Service, pathOf func(*config.Service) (string, error)) (warnings []error, _ error) {
	var faults config.Faults
	for i, s := range services {
		path, err := pathOf(s)
		if err == nil {
			s.Text, err = export.Read(path, export.Settings{Tokenizer: s.Tokenizer, Pooling: s.Pooling, Normalize: s.Normalize, Lengths: s.SeqLens})
		}
		switch of, _ := s.Of(); {
		case err != nil && s.Tokenizer == "":
			warnings = append(warnings, fmt.Errorf("service %s takes no text, because what lies beside its model cannot be used: %w", s.Name, err))
		case err != nil:
			faults = append(faults, textFault(s, err)...)
		case of != "" && i > 0 && of == first(services[i-1].Of()) && textHash(s) != textHash(services[i-1]):
			faults = append(faults, textFault(s, errOtherText)...)
		}
	}
	if len(faults) > 0 {
		return warnings, faults
	}
	return warnings, nil
}

// errOtherText is returned for a variant with another tokenizer than the one before it.
var errOtherText = errors.New("it differs from that of another variant, or what lies beside their models does, and a text is tokenized before a variant is chosen")

// first returns the first of two values.
func first[A, B any](a A, _ B) A { return a }

// textFault returns a fault that says why the tokenizer of a service cannot be used.
func textFault(s *config.Service, why error) config.Faults {
	return config.Faults{{Key: "service " + s.Name + ": tokenizer", Message: why.Error() +
		"; name a tokenizer.json of Hugging Face's tokenizers, or leave tokenizer out: the service then takes tensors only"}}
}

// textHash identifies what a service makes of text, "" if it takes none.
func textHash(s *config.Service) string {
	if s.Text == nil {
		return ""
	}
	return s.Text.Hash
}
