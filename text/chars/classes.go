package chars

import (
	"fmt"
	"strings"
)

// classes has what is unlike in Go's regular expressions.
var classes = map[string]string{
	"s":  `\t-\r\x{85}\p{Z}`,
	"d":  class("Nd", newNd),
	"w":  class("L", newLu, newLl, newLm, newLo) + class("M", newM) + class("Nd", newNd) + `\p{Nl}` + class("Pc", otherAlphabetic),
	"L":  class("L", newLu, newLl, newLm, newLo),
	"Lu": class("Lu", newLu),
	"Ll": class("Ll", newLl),
	"Lm": class("Lm", newLm),
	"Lo": class("Lo", newLo),
	"M":  class("M", newM),
	"N":  class("N", newNd),
	"Nd": class("Nd", newNd),
	"P":  class("P", newP),
	"S":  class("S", newS),
}

// Class returns the inside of brackets by which Go's regular expressions match a class or property of
// Oniguruma. Its class w has some numbers of Latin-1 only if it is alone, not in brackets.
func Class(name string, alone bool) string {
	inside, ok := classes[name]
	if !ok {
		return `\p{` + name + `}` // package regexp reports whether there is one
	}
	if name == "w" && alone {
		inside += class("Nd", latinNumbers)
	}
	return inside
}

// class writes a category of Unicode and ranges for the inside of brackets.
func class(category string, more ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, `\p{%s}`, category)
	for _, one := range strings.Fields(strings.Join(more, " ")) {
		low, high, found := strings.Cut(one, "-")
		fmt.Fprintf(&b, `\x{%s}`, low)
		if found {
			fmt.Fprintf(&b, `-\x{%s}`, high)
		}
	}
	return b.String()
}
