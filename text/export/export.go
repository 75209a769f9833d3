// Package export reads the files that training libraries export with an ONNX model of text: its
// tokenizer, and how its outputs become embeddings, scores or labels.
//
// The files are those of Hugging Face's libraries: tokenizer.json, config.json, and of
// sentence-transformers modules.json with the folders that it names. They lie in the folder
// of the model or, if that is called onnx, in the one above it.
package export

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/overlapd/overlapd/internal/textfile"
	"github.com/overlapd/overlapd/text/tokenizer"
)

// Poolings are the ways to make one embedding of the vectors of all tokens. PoolNone takes
// the model's own pooled output.
const (
	PoolMean = "mean"
	PoolCLS  = "cls"
	PoolLast = "last"
	PoolNone = "none"
)

// Auto is the value of a setting that the exported files decide.
const Auto = "auto"

// Settings are the configuration of a service that takes text. Tokenizer is a path or "". Pooling and Normalize may be Auto; Normalize is "yes" or "no" otherwise. Lengths are the
// sequence lengths that the service is measured at, in ascending order.
type Settings struct {
	Tokenizer string
	Pooling   string
	Normalize string
	Lengths   []int
}

// yes is the value of a setting that is on.
const yes = "yes"

// Text is how a service makes queries of text and reads its outputs. It is immutable.
type Text struct {
	Tokenizer *tokenizer.Tokenizer

	// Pooling is never Auto. Normalize has embeddings scaled to length 1.
	Pooling   string
	Normalize bool

	// Labels are the names of a classifier's classes, by their number, or nil. Independent is set
	// if a text can be in several of them.
	Labels      []string
	Independent bool

	// Lengths are what sequences are padded to, and Limit is the longest one, 0 if only
	// Lengths limit it.
	Lengths []int
	Limit   int

	// Vocabulary is the number of tokens, or 0 if it is not known.
	Vocabulary int64

	// Hash identifies the content of all files and the settings.
	Hash string
}

const (
	tokenizerFile = "tokenizer.json"
	onnxFolder    = "onnx"

	// maxTokenizerBytes and maxConfigBytes limit the files. The largest known tokenizers have
	// about 35 MB, and a config.json with many labels has some hundred kilobytes.
	maxTokenizerBytes = 128 << 20
	maxConfigBytes    = 4 << 20

	// maxLabels limits the classes of a classifier.
	maxLabels = 1 << 16
)

// Read reads the files next to a model. It returns nil without an error if there is no tokenizer
// and the settings name none.
func Read(model string, s Settings) (*Text, error) {
	path, content, err := readTokenizer(model, s.Tokenizer)
	if path == "" || err != nil {
		return nil, err
	}
	t := &Text{Pooling: s.Pooling, Normalize: s.Normalize == yes, Lengths: s.Lengths}
	if t.Tokenizer, err = tokenizer.Parse(content); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	r := reader{filepath.Dir(path), sha256.New()}
	fmt.Fprint(r.hash, s, len(content))
	r.hash.Write(content)
	if err := errors.Join(r.config(t), r.limit(t), r.modules(t, s)); err != nil {
		return nil, err
	}
	t.Hash = hex.EncodeToString(r.hash.Sum(nil))
	return t, nil
}

// readTokenizer returns the path and the content of the tokenizer: the given one, or else that
// of the model. The path is "" if there is none.
func readTokenizer(model, given string) (path string, content []byte, err error) {
	if given != "" {
		content, err = textfile.ReadRegular(given, maxTokenizerBytes)
		return given, content, err
	}
	folders := []string{filepath.Dir(model)}
	if filepath.Base(folders[0]) == onnxFolder {
		folders = append(folders, filepath.Dir(folders[0]))
	}
	for _, folder := range folders {
		path = filepath.Join(folder, tokenizerFile)
		if content, err = textfile.ReadRegular(path, maxTokenizerBytes); !errors.Is(err, fs.ErrNotExist) {
			return path, content, err
		}
	}
	return "", nil, nil
}

// reader reads the files of one folder and hashes them.
type reader struct {
	folder string
	hash   hash.Hash
}

// json reads a file of the folder into a value. It reports false if there is no such file.
func (r *reader) json(name string, into any) (found bool, err error) {
	path := filepath.Join(r.folder, name)
	text, err := textfile.ReadRegular(path, maxConfigBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err == nil {
		err = json.Unmarshal(text, into)
	}
	if err != nil {
		return true, fmt.Errorf("%s: %w", path, err)
	}
	fmt.Fprint(r.hash, name, len(text))
	r.hash.Write(text)
	return true, nil
}

// config reads the config.json of the model: its classes, its vocabulary and its longest
// sequence.
func (r *reader) config(t *Text) error {
	var c struct {
		Labels     map[string]string `json:"id2label"`
		Positions  int               `json:"max_position_embeddings"`
		Vocabulary int64             `json:"vocab_size"`
		Problem    string            `json:"problem_type"`
	}
	if _, err := r.json("config.json", &c); err != nil {
		return err
	}
	t.Limit, t.Vocabulary, t.Independent = max(c.Positions, 0), max(c.Vocabulary, 0), c.Problem == "multi_label_classification"
	if len(c.Labels) > maxLabels {
		return fmt.Errorf("config.json: id2label has %d classes, and the limit is %d", len(c.Labels), maxLabels)
	}
	t.Labels = make([]string, len(c.Labels))
	for id, label := range c.Labels {
		i, err := strconv.Atoi(id)
		if err != nil || i < 0 || i >= len(t.Labels) {
			return fmt.Errorf("config.json: id2label has the class %.40q, but its %d classes are numbered from 0", id, len(t.Labels))
		}
		t.Labels[i] = label
	}
	return nil
}

// limit reads the longest sequence that sentence-transformers would make.
func (r *reader) limit(t *Text) error {
	var c struct {
		Limit int `json:"max_seq_length"`
	}
	_, err := r.json("sentence_bert_config.json", &c)
	if c.Limit > 0 && (t.Limit == 0 || c.Limit < t.Limit) {
		t.Limit = c.Limit
	}
	return err
}

// modules reads how sentence-transformers makes embeddings, where the settings leave it open.
// Without modules.json it averages the tokens, and embeddings are normalized.
func (r *reader) modules(t *Text, s Settings) error {
	var list []struct{ Path, Type string }
	found, err := r.json("modules.json", &list)
	if err != nil || s.Pooling != Auto && s.Normalize != Auto {
		return err
	}
	pooling, normalize := "1_Pooling", !found
	for _, m := range list {
		switch kind := m.Type[strings.LastIndexByte(m.Type, '.')+1:]; kind {
		case "Transformer":
		case "Pooling":
			pooling = m.Path
		case "Normalize":
			normalize = true
		default:
			return fmt.Errorf("%s: the module %.80q is not supported: export the model with its embeddings as an output, and set pooling = %q and normalize",
				filepath.Join(r.folder, "modules.json"), kind, PoolNone)
		}
	}
	if s.Normalize == Auto {
		t.Normalize = normalize
	}
	if s.Pooling != Auto {
		return nil
	}
	if !filepath.IsLocal(pooling) {
		return fmt.Errorf("%s: the path %.80q leads out of the folder", filepath.Join(r.folder, "modules.json"), pooling)
	}
	t.Pooling, err = r.pooling(filepath.Join(pooling, "config.json"))
	return err
}

// poolingModes are the modes that are served, by their names in the files.
var poolingModes = map[string]string{
	"pooling_mode_mean_tokens": PoolMean, "pooling_mode_cls_token": PoolCLS, "pooling_mode_lasttoken": PoolLast,
	PoolMean: PoolMean, PoolCLS: PoolCLS, "lasttoken": PoolLast,
}

// pooling reads a pooling module. Older files have a key for each mode, newer ones name one.
func (r *reader) pooling(name string) (string, error) {
	var c map[string]any
	if found, err := r.json(name, &c); err != nil || !found {
		return PoolMean, err
	}
	var modes []string
	for key, value := range c {
		if value == true && strings.HasPrefix(key, "pooling_mode_") {
			modes = append(modes, key)
		}
	}
	if mode, ok := c["pooling_mode"].(string); ok {
		modes = append(modes, mode)
	}
	slices.Sort(modes)
	if len(modes) != 1 || poolingModes[modes[0]] == "" {
		return "", fmt.Errorf("%s: the pooling %.200q is not supported: set pooling to one of %s, %s, %s, %s",
			filepath.Join(r.folder, name), modes, PoolMean, PoolCLS, PoolLast, PoolNone)
	}
	return poolingModes[modes[0]], nil
}

// Longest returns the longest sequence that is made of text.
func (t *Text) Longest() int {
	longest := t.Limit
	if n := len(t.Lengths); n > 0 && (longest == 0 || t.Lengths[n-1] < longest) {
		longest = t.Lengths[n-1]
	}
	return longest
}

// Padded returns the length that a sequence of n tokens is padded to: the next one of
// Lengths, within the limit.
func (t *Text) Padded(n int) int {
	i, _ := slices.BinarySearch(t.Lengths, n)
	if i < len(t.Lengths) {
		return max(n, min(t.Lengths[i], t.Longest()))
	}
	return n
}
