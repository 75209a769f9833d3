package access

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"sync/atomic"
)

// Limits on tokens. The shortest cannot be guessed by asking, however fast.
const (
	minTokenBytes     = 16
	maxTokenBytes     = 512
	maxTokens         = 64
	maxTokenFileBytes = 64 << 10
)

// scheme is the one of HTTP that carries tokens.
const scheme = "bearer "

// tokens are what one of a request must carry, as hashes: their comparison
// takes the same time whatever a client sends.
type tokens struct {
	path  string
	files files
	now   atomic.Pointer[[][sha256.Size]byte]
}

func newTokens(path string, changed func(error)) *tokens {
	t := &tokens{path: path}
	t.files = files{paths: []string{path}, take: t.take, changed: changed}
	return t
}

// take reads the file.
func (t *tokens) take() error {
	list, err := readTokens(t.path)
	if err != nil {
		return err
	}
	t.keep(list)
	return nil
}

func (t *tokens) keep(list [][]byte) {
	hashes := make([][sha256.Size]byte, len(list))
	for i := range list {
		hashes[i] = sha256.Sum256(list[i])
	}
	t.now.Store(&hashes)
}

// readTokens reads a file of tokens, of which there is one at least.
func readTokens(path string) ([][]byte, error) {
	text, err := read(path, maxTokenFileBytes)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrTokens, err)
	}
	list, err := parseTokens(text)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrTokens, path, err)
	}
	return list, nil
}

// parseTokens reads tokens, one a line. Empty lines and those that begin with
// "#" are left out.
func parseTokens(text []byte) (list [][]byte, err error) {
	number := 0
	for line := range bytes.Lines(text) {
		number++
		token := bytes.TrimSpace(line)
		switch {
		case len(token) == 0 || token[0] == '#':
			continue
		case len(token) < minTokenBytes || len(token) > maxTokenBytes || !wellFormed(token):
			return nil, fmt.Errorf("line %d: a token is %d to %d letters, digits and -._~+/=; openssl rand -hex 32 makes one",
				number, minTokenBytes, maxTokenBytes)
		case len(list) == maxTokens:
			return nil, fmt.Errorf("line %d: the file has more than %d tokens: remove those that nobody uses", number, maxTokens)
		}
		list = append(list, token)
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("the file has no token, and nobody could ask: openssl rand -hex 32 makes one, and without access.token_file none is needed")
	}
	return list, nil
}

// wellFormed reports whether a token can stand in a header (RFC 6750).
func wellFormed(token []byte) bool {
	for _, c := range token {
		letter := c|0x20 >= 'a' && c|0x20 <= 'z'
		if !letter && (c < '0' || c > '9') && !bytes.ContainsRune([]byte("-._~+/="), rune(c)) {
			return false
		}
	}
	return true
}

// allow reports whether an Authorization header carries a token of the file.
func (t *tokens) allow(authorization []byte) bool {
	t.files.look()
	if len(authorization) < len(scheme) || len(authorization) > len(scheme)+maxTokenBytes || !bytes.EqualFold(authorization[:len(scheme)], []byte(scheme)) {
		return false
	}
	sent, found := sha256.Sum256(authorization[len(scheme):]), 0
	hashes := *t.now.Load()
	for i := range hashes {
		found |= subtle.ConstantTimeCompare(sent[:], hashes[i][:])
	}
	return found == 1
}
