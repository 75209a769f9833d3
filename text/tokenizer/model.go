package tokenizer

import (
	"bytes"
	"encoding/json"
)

// model turns a piece into tokens.
type model interface {
	// tokens appends the IDs of the tokens of a piece that is not empty.
	tokens(ids []int64, text string, s *scratch) ([]int64, error)
	// apart reports whether a piece has the same tokens if it is cut between two characters.
	apart(before, after rune) bool
	// words returns the model's vocabulary.
	words() *vocabulary
}

// models has a builder for each type of model.
var models = map[string]builder[model]{
	"BPE":       as(newBPE),
	"Unigram":   as(newUnigram),
	"WordLevel": as(newWordLevel),
	"WordPiece": as(newWordPiece),
}

// newModel reads a model. Old files do not name its type, which its fields then imply.
func newModel(raw json.RawMessage) (model, error) {
	var spec struct {
		Type     *string
		Merges   json.RawMessage
		Vocab    json.RawMessage
		MaxChars json.RawMessage `json:"max_input_chars_per_word"`
	}
	if err := json.Unmarshal(raw, &spec); err != nil {
		return nil, err
	}
	if spec.Type == nil {
		kind := "WordLevel"
		switch {
		case spec.Merges != nil:
			kind = "BPE"
		case bytes.HasPrefix(spec.Vocab, []byte("[")):
			kind = "Unigram"
		case spec.MaxChars != nil:
			kind = "WordPiece"
		}
		return named("model", kind, raw, models)
	}
	return named("model", *spec.Type, raw, models)
}

// as makes the builder of a kind of model one of any model.
func as[S any, M model](build func(S) (M, error)) builder[model] {
	return options(func(spec S) (model, error) { return build(spec) })
}
