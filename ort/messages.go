package ort

import (
	"regexp"
	"strings"
)

// What ONNX Runtime adds to the text of a message: terminal colours, and the place in its
// source where the message was written. A place with a path is followed by the signature of
// a function, a place without one by the name of the function.
var (
	colours   = regexp.MustCompile("\x1b\\[[0-9;]*m")
	placed    = regexp.MustCompile(`(^|\s)/\S+\.(?:cc|cpp|cu|cuh|h|hpp):\d+ `)
	named     = regexp.MustCompile(`(^|\s)[\w.-]+\.(?:cc|cpp|cu|cuh|h|hpp):\d+ (?:operator\(\)|[\w~]+) `)
	condition = regexp.MustCompile(`^.*? was false\. ?(.+)`)
)

// clean returns a message of ONNX Runtime on one line, without colours, without places in
// its source, and without the C++ condition that a failed check states first.
func clean(message string) string {
	message, _, _ = strings.Cut(colours.ReplaceAllString(message, ""), "\nStacktrace:")
	message = strings.Join(strings.Fields(message), " ")
	for {
		at := placed.FindStringIndex(message)
		skip := 0
		if at != nil {
			skip = signature(message[at[1]:])
		} else if at = named.FindStringIndex(message); at == nil {
			return strings.TrimSpace(message)
		}
		rest := strings.TrimLeft(message[at[1]+skip:], " ")
		message = strings.TrimRight(message[:at[0]], " ") + " " + condition.ReplaceAllString(rest, "$1")
	}
}

// signature returns the length of the signature of a C++ function at the beginning of s, 0
// if there is none.
func signature(s string) int {
	open := parameters(s)
	if open < 0 {
		return 0
	}
	end := open
	for { // operator()(int), f(int)::<lambda(float)>, f(T) const [with T = float]
		switch rest := s[end:]; {
		case strings.HasPrefix(rest, "("), strings.HasPrefix(rest, " [with "):
			end += closing(rest)
		case strings.HasPrefix(rest, " const"):
			end += len(" const")
		case strings.HasPrefix(rest, "::<lambda"):
			end += len("::") + closing(rest[len("::"):])
		default:
			return end
		}
	}
}

// parameters returns the index of the parameter list in the signature at the beginning of
// s, -1 if there is no signature.
func parameters(s string) int {
	depth := 0
	for i, c := range s {
		switch c {
		case '<':
			depth++
		case '>':
			depth--
		case '(':
			if depth == 0 {
				return i
			}
		case '.', ';', '\'', '"', '{':
			if depth == 0 {
				return -1 // it is a sentence
			}
		}
	}
	return -1
}

// closing returns the index after the bracket that closes the first one in s, which may be
// preceded by a space. It returns the length of s if the bracket is not closed.
func closing(s string) int {
	depth := 0
	for i, c := range s {
		switch c {
		case '(', '[', '<', '{':
			depth++
		case ')', ']', '>', '}':
			if depth--; depth == 0 {
				return i + 1
			}
		}
	}
	return len(s)
}

// remedies says what to do about messages that a user can act on. An entry applies if the
// message contains words; the message is cut before end.
var remedies = []struct{ words, end, remedy string }{
	{"max supported IR version", "", newer},
	{"official released onnx opset versions", "", newer},
	{"is not a registered function/op", "", "neither ONNX Runtime VERSION nor a library of op_libraries has this operator: name one that has it, or export the model without it"},
	{"Failed to construct locale", ":locale::facet", "install that locale (Debian: apt-get install locales-all), or export the model with one that this host has (locale -a lists them)"},
}

const newer = "export the model for a supported version, or set " + PathVariable + " to an ONNX Runtime newer than VERSION"

// explain returns a cleaned message of the library, with a remedy if there is one.
func (l *Library) explain(message string) string {
	message = clean(message)
	for _, r := range remedies {
		if !strings.Contains(message, r.words) {
			continue
		}
		if r.end != "" {
			message, _, _ = strings.Cut(message, r.end)
		}
		return strings.TrimRight(message, ".") + "; " + strings.ReplaceAll(r.remedy, "VERSION", l.version)
	}
	return message
}
