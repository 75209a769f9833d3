package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
)

// template is the order of special tokens and the tokens of texts, for one text and for a pair. Every
// post-processor is one.
type template struct{ single, pair []part }

// Limits on a template, so that no file makes a short text a long one.
const (
	maxParts   = 16
	maxSpecial = 1024 // special tokens
)

// part is a text of a template, or special tokens.
type part struct {
	text int // 0 or 1, or none for special tokens
	ids  []int64
	typ  int64
}

// bare is the template of a file without a post-processor.
var bare = template{[]part{{text: 0}}, []part{{text: 0}, {text: 1, typ: 1}}}

// added returns the number of special tokens of parts.
func added(parts []part) int {
	n := 0
	for _, p := range parts {
		n += len(p.ids)
	}
	return n
}

// postProcessors has a builder for each type of post-processor. One that adds nothing has no parts.
var postProcessors map[string]builder[template]

func init() { // sequences contain post-processors
	postProcessors = map[string]builder[template]{
		"BertProcessing":     options(newBertTemplate),
		"ByteLevel":          fixed(template{}), // concerns offsets only
		"RobertaProcessing":  options(newRobertaTemplate),
		"Sequence":           options(newTemplateSequence),
		"TemplateProcessing": options(newTemplate),
	}
}

// namedToken is a special token as a list of its text and its ID.
type namedToken struct{ id int64 }

// UnmarshalJSON reads the list, of which the text does not matter.
func (n *namedToken) UnmarshalJSON(raw []byte) error {
	var text string
	var id uint32
	if err := json.Unmarshal(raw, &[2]any{&text, &id}); err != nil {
		return err
	}
	n.id = int64(id)
	return nil
}

// ends are the two special tokens of BERT and of RoBERTa.
type ends struct{ Cls, Sep *namedToken }

// parts returns the special tokens as parts of a template.
func (e ends) parts() (cls, sep part, err error) {
	if e.Cls == nil || e.Sep == nil {
		return cls, sep, errors.New("cls or sep is missing")
	}
	return part{text: none, ids: []int64{e.Cls.id}}, part{text: none, ids: []int64{e.Sep.id}}, nil
}

// newBertTemplate has a segment for each text, which its separator belongs to.
func newBertTemplate(spec ends) (template, error) {
	cls, sep, err := spec.parts()
	second := sep
	second.typ = 1
	return template{
		[]part{cls, {text: 0}, sep},
		[]part{cls, {text: 0}, sep, {text: 1, typ: 1}, second},
	}, err
}

// newRobertaTemplate has one segment for both texts, and two separators between them.
func newRobertaTemplate(spec ends) (template, error) {
	cls, sep, err := spec.parts()
	return template{
		[]part{cls, {text: 0}, sep},
		[]part{cls, {text: 0}, sep, sep, {text: 1}, sep},
	}, err
}

// newTemplateSequence takes the one processor that adds tokens. The others only concern offsets.
func newTemplateSequence(spec struct{ Processors []json.RawMessage }) (template, error) {
	var all template
	for _, processor := range spec.Processors {
		one, err := component("post_processor", processor, postProcessors)
		if err != nil {
			return template{}, err
		}
		if one.single == nil {
			continue
		}
		if all.single != nil {
			return template{}, errors.New("several processors add tokens; one may")
		}
		all = one
	}
	return all, nil
}

// pieceSpec is a piece of a template in a file.
type pieceSpec struct {
	Sequence *struct {
		ID   string
		Type uint32 `json:"type_id"`
	}
	SpecialToken *struct {
		ID   string
		Type uint32 `json:"type_id"`
	}
}

// newTemplate reads templates. A special token of theirs may stand for several IDs.
func newTemplate(spec struct {
	Single, Pair []pieceSpec
	Tokens       map[string]struct{ IDs []uint32 } `json:"special_tokens"`
}) (template, error) {
	tokens := make(map[string][]int64)
	for name, token := range spec.Tokens {
		for _, id := range token.IDs {
			tokens[name] = append(tokens[name], int64(id))
		}
	}
	single, err := parts(spec.Single, tokens)
	if err != nil {
		return template{}, err
	}
	// The template of a pair may lack a text, which is then ignored.
	for _, p := range single {
		if p.text == 1 {
			return template{}, errors.New("the template for one text has the second")
		}
	}
	pair, err := parts(spec.Pair, tokens)
	return template{single, pair}, err
}

// parts returns the parts of a template.
func parts(pieces []pieceSpec, tokens map[string][]int64) ([]part, error) {
	if len(pieces) == 0 || len(pieces) > maxParts {
		return nil, fmt.Errorf("a template has %d pieces; it may have 1 to %d", len(pieces), maxParts)
	}
	var all []part
	for _, p := range pieces {
		switch {
		case p.Sequence != nil && p.Sequence.ID == "A":
			all = append(all, part{text: 0, typ: int64(p.Sequence.Type)})
		case p.Sequence != nil && p.Sequence.ID == "B":
			all = append(all, part{text: 1, typ: int64(p.Sequence.Type)})
		case p.SpecialToken != nil:
			ids, ok := tokens[p.SpecialToken.ID]
			if !ok {
				return nil, fmt.Errorf("special_tokens lacks %q", p.SpecialToken.ID)
			}
			all = append(all, part{text: none, ids: ids, typ: int64(p.SpecialToken.Type)})
		default:
			return nil, errors.New("a piece of a template is neither a Sequence A or B nor a SpecialToken")
		}
	}
	if n := added(all); n > maxSpecial {
		return nil, fmt.Errorf("a template adds %d special tokens; the limit is %d", n, maxSpecial)
	}
	return all, nil
}

// Encoding is a text, or a pair of texts, as a model takes it. The attention mask is 1 for each token:
// padding is up to the caller.
type Encoding struct {
	IDs   []int64
	Types []int64 // the segment of each token: 0 for the first text, 1 for the second, unless the file says otherwise
	Cut   bool    // whether tokens were left out to keep the limit
}

// fill writes the tokens of texts into parts.
func fill(parts []part, texts [2][]int64) Encoding {
	n := added(parts)
	for _, p := range parts {
		if p.text != none {
			n += len(texts[p.text])
		}
	}
	// One allocation for each of the two, which the caller keeps.
	e := Encoding{IDs: make([]int64, 0, n), Types: make([]int64, 0, n)}
	for _, p := range parts {
		ids := p.ids
		if p.text != none {
			ids = texts[p.text]
		}
		e.IDs = append(e.IDs, ids...)
		for range ids {
			e.Types = append(e.Types, p.typ)
		}
	}
	return e
}
