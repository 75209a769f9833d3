package tokenizer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

// unigram divides a piece into the tokens with the highest sum of scores.
type unigram struct {
	*vocabulary
	scores       []float64
	unknown      int32
	unknownScore float64
	byteFallback bool
	byteTokens   [256]int32
}

// unknownPenalty is the difference between the worst token's score and that of an unknown character.
const unknownPenalty = 10

// newUnigram makes a model of tokens with their scores. The ID of a token is its index in the list.
func newUnigram(spec struct {
	Vocab        []scored
	Unk          *int `json:"unk_id"`
	ByteFallback bool `json:"byte_fallback"`
}) (*unigram, error) {
	if len(spec.Vocab) > math.MaxInt32-maxAdded {
		return nil, errors.New("the vocabulary is too large")
	}
	m := &unigram{scores: make([]float64, len(spec.Vocab)), unknown: none, byteFallback: spec.ByteFallback}
	if spec.Unk != nil {
		if *spec.Unk < 0 || *spec.Unk >= len(spec.Vocab) {
			return nil, fmt.Errorf("unk_id is %d, the vocabulary has %d tokens", *spec.Unk, len(spec.Vocab))
		}
		m.unknown = int32(*spec.Unk)
	}
	entries := make([]entry, len(spec.Vocab))
	worst := math.Inf(1)
	for i, word := range spec.Vocab {
		entries[i] = entry{word.token, int32(i)}
		m.scores[i] = word.score
		worst = min(worst, word.score)
	}
	// Even a path of the worst tokens is better than one through an unknown character.
	m.unknownScore = worst - unknownPenalty
	m.vocabulary = &vocabulary{newTrie(entries), len(spec.Vocab), int32(len(spec.Vocab) - 1)}
	m.byteTokens = m.bytes()
	return m, nil
}

// scored is a token with its score, as a list of the two.
type scored struct {
	token string
	score float64
}

// UnmarshalJSON reads the pair. The score is the number behind the last comma.
func (s *scored) UnmarshalJSON(raw []byte) error {
	comma := bytes.LastIndexByte(raw, ',')
	if comma < 1 || raw[0] != '[' {
		return fmt.Errorf("%.40s is not a token and its score", raw)
	}
	number := string(bytes.Trim(raw[comma+1:], " \t\r\n]"))
	score, err := parseScore(number)
	if err != nil {
		return fmt.Errorf("%.40s is not a token and its score", raw)
	}
	s.score = score
	return json.Unmarshal(raw[1:comma], &s.token)
}

// parseScore reads a number as the reference does, which rounds twice: all digits to a number without a
// point, and that divided by a power of ten. The result may be off by the last bit, which decides between two
// paths of nearly the same score.
func parseScore(text string) (float64, error) {
	if _, err := strconv.ParseFloat(text, 64); err != nil {
		return 0, err
	}
	text, exponentText, _ := strings.Cut(strings.ToLower(text), "e")
	exponent, _ := strconv.Atoi(exponentText)
	digits, negative := strings.CutPrefix(text, "-")
	var whole uint64
	point, full := false, false
	for _, c := range digits {
		if c == '.' {
			point = true
			continue
		}
		digit := uint64(c - '0')
		// Digits that do not fit are dropped: before the point, each counts as a zero.
		full = full || whole > (math.MaxUint64-digit)/10
		if !full {
			whole = whole*10 + digit
		}
		if point && !full {
			exponent--
		} else if !point && full {
			exponent++
		}
	}
	if whole == 0 {
		return 0, nil // whatever the exponent, which may not fit either
	}
	score := float64(whole)
	for ; exponent < -maxExponent && score != 0; exponent += maxExponent {
		score /= 1e308
	}
	power, err := strconv.ParseFloat(fmt.Sprint("1e", min(max(exponent, -exponent), maxExponent)), 64)
	if exponent < 0 {
		score /= power
	} else {
		score *= power
	}
	if negative {
		score = -score
	}
	return score, err
}

// maxExponent is the exponent of the highest power of ten that is a float64.
const maxExponent = 308

// tokens appends the IDs of the best path through a text. It follows the path from its end, because a step
// has only the token that ends there.
func (m *unigram) tokens(ids []int64, text string, s *scratch) ([]int64, error) {
	if err := m.best(text, s); err != nil {
		return ids, err
	}
	// Backwards: s.ends gets the end of each token. Unknown ones in a row are one: only the last of them
	// has an end.
	s.ends = s.ends[:0]
	fused := false
	for end := int32(len(text)); end > 0; end = s.steps[end].from {
		unknown := s.steps[end].id == m.unknown
		if !unknown || !fused {
			s.ends = append(s.ends, end)
		}
		fused = unknown
	}
	start := int32(0)
	for i := len(s.ends) - 1; i >= 0; i-- {
		end := s.ends[i]
		ids = m.appendToken(ids, text[start:end], s.steps[end])
		start = end
	}
	return ids, nil
}

// best fills s.steps with the best path to each place of a text.
func (m *unigram) best(text string, s *scratch) error {
	s.steps = append(s.steps[:0], make([]step, len(text)+1)...)
	for i := range s.steps {
		s.steps[i].from = none
	}
	for at := 0; at < len(text); {
		if at%checkInterval == 0 {
			if err := s.check(); err != nil {
				return err
			}
		}
		_, size := utf8.DecodeRuneInString(text[at:])
		// Every word that begins here leads to its end. If none is this character alone, there is also the
		// path that takes it for unknown, so that every place can be reached.
		here, known, node := s.steps[at].score, false, int32(0)
		for end := at; end < len(text); {
			if node = m.step(node, text[end]); node == none {
				break
			}
			end++
			id := m.id[node]
			if id == none {
				continue
			}
			s.steps[end].improve(here+m.scores[id], int32(at), id)
			known = known || end == at+size
		}
		if !known {
			if m.unknown == none {
				return ErrUnknown
			}
			s.steps[at+size].improve(here+m.unknownScore, int32(at), m.unknown)
		}
		at += size
	}
	return nil
}

// appendToken appends the ID of a token, or those of its bytes if it is unknown.
func (m *unigram) appendToken(ids []int64, text string, last step) []int64 {
	id := last.id
	// Several unknown characters may be a word together, and the word that is called <unk> is known.
	if id == m.unknown {
		id = m.find(text)
	}
	if id != none {
		return append(ids, int64(id))
	}
	if m.byteFallback {
		if ids, ok := appendBytes(ids, text, &m.byteTokens); ok {
			return ids
		}
	}
	return append(ids, int64(m.unknown))
}
