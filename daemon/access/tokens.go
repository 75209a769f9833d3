package access

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"regexp"

	"github.com/overlapd/overlapd/internal/textfile"
)

// Limits on tokens. At 16 characters a token cannot be guessed, at whatever rate requests
// are sent.
const (
	minTokenBytes     = 16
	maxTokenBytes     = 512
	maxTokens         = 64
	maxTokenFileBytes = 64 << 10
)

// token matches a bearer token (RFC 6750) within the limits.
var token = regexp.MustCompile(fmt.Sprintf(`^[-A-Za-z0-9._~+/=]{%d,%d}$`, minTokenBytes, maxTokenBytes))

// scheme is the prefix of the Authorization header, in lower case.
const scheme = "bearer "

// hashes reads the token file. Hashes have the same length, so comparing them takes the
// same time whatever a client sends.
func (o *Options) hashes() (*[][sha256.Size]byte, error) {
	list, err := readTokens(o.TokenFile)
	hashes := hashed(list)
	return &hashes, err
}

// hashed returns the hashes of tokens.
func hashed(tokens [][]byte) (all [][sha256.Size]byte) {
	for _, t := range tokens {
		all = append(all, sha256.Sum256(t))
	}
	return all
}

// readTokens reads a token file, which must have at least one token.
func readTokens(path string) ([][]byte, error) {
	text, err := textfile.ReadRegular(path, maxTokenFileBytes)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrTokens, err)
	}
	list, err := parseTokens(text)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrTokens, path, err)
	}
	return list, nil
}

// parseTokens parses tokens, one a line. It skips empty lines and lines that begin with
// "#".
func parseTokens(text []byte) (list [][]byte, err error) {
	number := 0
	for line := range bytes.Lines(text) {
		number++
		line = bytes.TrimSpace(line)
		switch {
		case len(line) == 0 || line[0] == '#':
			continue
		case !token.Match(line):
			return nil, fmt.Errorf("line %d: a token must be %d to %d letters, digits and -._~+/=; make one with openssl rand -hex 32",
				number, minTokenBytes, maxTokenBytes)
		case len(list) == maxTokens:
			return nil, fmt.Errorf("line %d: the file has more than %d tokens: remove unused ones", number, maxTokens)
		}
		list = append(list, line)
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("the file has no token, so nobody would have access: make one with openssl rand -hex 32, or leave out access.token_file")
	}
	return list, nil
}

// allows reports whether an Authorization header has one of the tokens. It compares all of
// them, so that its duration does not tell which one matched.
func allows(hashes [][sha256.Size]byte, authorization []byte) bool {
	if len(authorization) < len(scheme) || len(authorization) > len(scheme)+maxTokenBytes || !bytes.EqualFold(authorization[:len(scheme)], []byte(scheme)) {
		return false
	}
	sent, found := sha256.Sum256(authorization[len(scheme):]), 0
	for i := range hashes {
		found |= subtle.ConstantTimeCompare(sent[:], hashes[i][:])
	}
	return found == 1
}
