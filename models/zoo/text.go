package zoo

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/overlapd/overlapd/internal/textfile"
)

// The models for text are laid out as exporters do: each in a folder of its own, with its
// tokenizer and what says how its outputs become embeddings, scores or labels.
const (
	modelFile     = "model.onnx"
	tokenizerFile = "tokenizer.json"
	configFile    = "config.json"
	modulesFile   = "modules.json"
	poolingFolder = "1_Pooling"
)

// textPositions is the longest sequence of the models for text.
const textPositions = 512

// textBERT returns the dimensions of the BERT models for text.
func textBERT() bert {
	return bert{layers: 4, hidden: 256, heads: 4, inner: 1024, vocabulary: int64(len(vocabulary())), positions: textPositions}
}

// textLabels are the labels of text_classifier.
var textLabels = []string{"negative", "neutral", "positive"}

// textEncoder adds a BERT encoder whose output is the hidden states.
func textEncoder(g *graph) {
	m := textBERT()
	g.output(m.encode(g), "last_hidden_state", batched(g.elem, free("sequence"), fixed(m.hidden)))
}

// textScorer returns a function that adds a BERT encoder with a classifier.
func textScorer(labels ...string) func(*graph) {
	return func(g *graph) {
		m, classes := textBERT(), int64(len(labels))
		x := g.dense(m.pool(g, m.encode(g)), "classifier", m.hidden, classes, forLinear(m.hidden))
		g.output(x, "logits", batched(g.elem, fixed(classes)))
	}
}

// besideEncoder returns the files of a model whose hidden states are averaged and normalized.
func besideEncoder() map[string]any {
	type module struct {
		Index int    `json:"idx"`
		Name  string `json:"name"`
		Path  string `json:"path"`
		Type  string `json:"type"`
	}
	const kind = "sentence_transformers.models."
	m := textBERT()
	return map[string]any{
		tokenizerFile: tokenizer(),
		configFile:    map[string]any{"hidden_size": m.hidden, "max_position_embeddings": m.positions, "vocab_size": m.vocabulary},
		modulesFile: []module{
			{0, "0", "", kind + "Transformer"}, {1, "1", poolingFolder, kind + "Pooling"}, {2, "2", "2_Normalize", kind + "Normalize"},
		},
		path.Join(poolingFolder, configFile): map[string]any{
			"word_embedding_dimension": m.hidden, "pooling_mode_mean_tokens": true, "pooling_mode_cls_token": false,
		},
	}
}

// besideScorer returns a function that returns the files of a classifier.
func besideScorer(labels ...string) func() map[string]any {
	return func() map[string]any {
		m, names := textBERT(), map[string]string{}
		for i, label := range labels {
			names[strconv.Itoa(i)] = label
		}
		return map[string]any{tokenizerFile: tokenizer(), configFile: map[string]any{
			"id2label": names, "hidden_size": m.hidden, "max_position_embeddings": m.positions, "vocab_size": m.vocabulary,
		}}
	}
}

// writeBeside writes files below dir as JSON, but for those that are there already.
func writeBeside(dir string, files map[string]any) error {
	for name, content := range files {
		text, err := json.Marshal(content)
		if err != nil {
			return err
		}
		file := filepath.Join(dir, filepath.FromSlash(name))
		if found, err := os.ReadFile(file); err == nil && bytes.Equal(found, text) {
			continue
		}
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return err
		}
		if err := textfile.Replace(file, func(w io.Writer) error { _, err := w.Write(text); return err }); err != nil {
			return err
		}
	}
	return nil
}

// The special tokens begin the vocabulary in this order.
const (
	padToken = iota
	unknownToken
	classToken
	separatorToken
	specialTokens
)

// continued begins the pieces that continue a word.
const continued = "##"

// vocabulary returns the pieces of the zoo's WordPiece tokenizer by their IDs: special
// tokens, characters and syllables. It covers every lower-case word of ASCII letters.
var vocabulary = sync.OnceValue(func() []string {
	const (
		vowels     = "aeiouy"
		consonants = "bcdfghjklmnpqrstvwxz"
	)
	pieces := []string{padToken: "[PAD]", unknownToken: "[UNK]", classToken: "[CLS]", separatorToken: "[SEP]"}
	add := func(piece string) { pieces = append(pieces, piece, continued+piece) }
	for c := '!'; c <= '~'; c++ {
		if c < 'A' || c > 'Z' {
			add(string(c))
		}
	}
	for c := range strings.SplitSeq(consonants, "") {
		for v := range strings.SplitSeq(vowels, "") {
			add(c + v)
			for end := range strings.SplitSeq(consonants, "") {
				add(c + v + end)
			}
		}
	}
	return pieces
})

// tokenizer returns the content of a tokenizer.json for the vocabulary.
func tokenizer() any {
	type object = map[string]any
	ids := map[string]int{}
	for id, piece := range vocabulary() {
		ids[piece] = id
	}
	var added []object
	for id, piece := range vocabulary()[:specialTokens] {
		added = append(added, object{"id": id, "content": piece, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true})
	}
	token := func(id, typ int) object {
		return object{"SpecialToken": object{"id": vocabulary()[id], "type_id": typ}}
	}
	sequence := func(id string, typ int) object { return object{"Sequence": object{"id": id, "type_id": typ}} }
	single := []object{token(classToken, 0), sequence("A", 0), token(separatorToken, 0)}
	pair := append(slices.Clone(single), sequence("B", 1), token(separatorToken, 1))
	specials := object{}
	for _, id := range []int{classToken, separatorToken} {
		piece := vocabulary()[id]
		specials[piece] = object{"id": piece, "ids": []int{id}, "tokens": []string{piece}}
	}
	return object{
		"version": "1.0", "truncation": nil, "padding": nil, "added_tokens": added,
		"normalizer":     object{"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true, "strip_accents": nil, "lowercase": true},
		"pre_tokenizer":  object{"type": "BertPreTokenizer"},
		"post_processor": object{"type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": specials},
		"decoder":        object{"type": "WordPiece", "prefix": continued, "cleanup": true},
		"model": object{
			"type": "WordPiece", "unk_token": vocabulary()[unknownToken], "continuing_subword_prefix": continued,
			"max_input_chars_per_word": 100, "vocab": ids,
		},
	}
}
