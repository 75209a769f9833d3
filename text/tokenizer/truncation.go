package tokenizer

import "fmt"

// truncation shortens texts to a number of tokens. Its strategy says which of a pair: the longer one, or
// always the same. Its direction says at which end, as files write it.
type truncation struct {
	Direction string
	MaxLength int `json:"max_length"`
	Strategy  string
}

// The values in files, and what stands for the lack of a limit.
const (
	left       = "Left"
	right      = "Right"
	longest    = "LongestFirst"
	onlyFirst  = "OnlyFirst"
	onlySecond = "OnlySecond"
	unlimited  = -1
	maxTokens  = 1 << 30 // a limit above it is none
)

// validate checks what a file says and fills in what it may leave out.
func (c *truncation) validate() error {
	if c.Direction == "" {
		c.Direction = right
	}
	if c.Direction != left && c.Direction != right {
		return fmt.Errorf("truncation: direction is %q, not %s or %s", c.Direction, left, right)
	}
	if c.Strategy != longest && c.Strategy != onlyFirst && c.Strategy != onlySecond {
		return fmt.Errorf("truncation: strategy is %q, not %s, %s or %s", c.Strategy, longest, onlyFirst, onlySecond)
	}
	if c.MaxLength < 1 {
		return fmt.Errorf("truncation: max_length is %d; it must be positive", c.MaxLength)
	}
	c.MaxLength = min(c.MaxLength, maxTokens)
	return nil
}

// odd reports whether two texts that are both too long get different numbers of tokens.
func (c *truncation) odd(parts []part) bool {
	return c.Strategy == longest && (c.MaxLength-added(parts))%2 == 1
}

// lengths returns to how many tokens a text, or a pair, is shortened so that it has at most some. Where the
// strategy cannot drop enough, as if there is only one text or the other alone is too long, the reference
// fails. Then the longer text is shortened here: a request need not know the file.
func (c *truncation) lengths(first, second, most int) (int, int) {
	excess := first + second - most
	switch {
	case excess <= 0:
		return first, second
	case second == 0:
		return most, 0
	case c.Strategy == onlyFirst && first > excess:
		return first - excess, second
	case c.Strategy == onlySecond && second > excess:
		return first, second - excess
	}
	// The longer one is shortened until both are equal, then both.
	short := min(first, second)
	long := max(short, most-short)
	if short+long > most {
		short = most / 2
		long = short + most%2
	}
	if first > second {
		return long, short
	}
	return short, long
}

// shorten returns so many tokens of a text.
func (c *truncation) shorten(ids []int64, length int) []int64 {
	if c.Direction == left {
		return ids[max(0, len(ids)-length):]
	}
	return ids[:min(len(ids), length)]
}
