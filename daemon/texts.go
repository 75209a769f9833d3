package daemon

import (
	"fmt"

	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/text/export"
)

// readTexts reads the tokenizer of each service that has one, and what else lies beside its
// model. A tokenizer that the configuration names must be usable. One that merely lies beside
// a model need not be: the service then takes tensors only, as it would without the file.
//
// Variants of a service must have the same, because a text is tokenized before one is chosen.
func (p pool) readTexts(c *config.Config) error {
	if p[0].emulation != nil {
		return nil // its models compute nothing
	}
	var faults config.Faults
	for i := range c.Services {
		s := &c.Services[i]
		path, err := p[0].model(s.Model)
		if err == nil {
			s.Text, err = export.Read(path, export.Settings{Tokenizer: s.Tokenizer, Pooling: s.Pooling, Normalize: s.Normalize, Lengths: s.SeqLens})
		}
		switch {
		case err != nil && s.Tokenizer == "":
			p[0].log.Warn().Err(err).Str("service", s.Name).Msg("the tokenizer beside the model cannot be used; the service takes no text")
		case err != nil:
			faults = append(faults, textFault(s.Name, err)...)
		}
		if of, _ := s.Of(); of != "" && i > 0 {
			before := &c.Services[i-1]
			if other, _ := before.Of(); other == of && textHash(s) != textHash(before) {
				faults = append(faults, textFault(s.Name, fmt.Errorf("it differs from that of %s, and a text is tokenized before a variant is chosen: name one file in tokenizer", before.Name))...)
			}
		}
	}
	if len(faults) > 0 {
		return faults
	}
	return nil
}

// textFault returns a fault that says why the tokenizer of a service cannot be used.
func textFault(service string, why error) config.Faults {
	return config.Faults{{Key: "service " + service + ": tokenizer", Message: why.Error()}}
}

// textHash identifies the tokenizer of a service, "" if it has none.
func textHash(s *config.Service) string {
	if s.Text == nil {
		return ""
	}
	return s.Text.Hash
}
