package tokenizer

import "fmt"

// truncation limits the number of tokens. Strategy selects the text of a pair that is shortened, and
// Direction the end at which tokens are dropped.
type truncation struct {
	Direction string
	MaxLength int `json:"max_length"`
	Strategy  string
}

// The values of files.
const (
	left       = "Left"
	right      = "Right"
	longest    = "LongestFirst"
	onlyFirst  = "OnlyFirst"
	onlySecond = "OnlySecond"
)

const (
	unlimited = -1      // stands for no limit
	maxTokens = 1 << 30 // is the highest limit, which no text reaches
)

// validate checks the values of a file and sets the defaults of those that it may lack.
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

// lengths returns how many tokens are kept of a text and its pair so that they have at most most. Where the
// strategy cannot drop enough, because there is one text only or the other alone is too long, the
// reference fails. Here the longer text is shortened then, because a client need not know the file.
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

// shorten returns the first or the last length tokens of a text.
func (c *truncation) shorten(ids []int64, length int) []int64 {
	if c.Direction == left {
		return ids[max(0, len(ids)-length):]
	}
	return ids[:min(len(ids), length)]
}
