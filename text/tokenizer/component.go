package tokenizer

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// maxDepth is the limit on nested brackets. Each level of a sequence is read again with the next, so a deeply
// nested file would take quadratic time.
const maxDepth = 64

// optional makes a component, or returns the zero value if the file lacks it.
func optional[T any](role string, raw json.RawMessage, known map[string]builder[T]) (made T, err error) {
	if absent(raw) {
		return made, nil
	}
	depth, quoted := 0, false
	for i := 0; i < len(raw); i++ {
		switch raw[i] {
		case '"':
			quoted = !quoted
		case '\\':
			i++ // only in a string
		case '{', '[':
			if !quoted {
				depth++
			}
		case '}', ']':
			if !quoted {
				depth--
			}
		}
		if depth > maxDepth {
			return made, fmt.Errorf("%s has more than %d brackets within brackets", role, maxDepth)
		}
	}
	return component(role, raw, known)
}

// component makes a component from its part of a file, by the name of its type.
func component[T any](role string, raw json.RawMessage, known map[string]builder[T]) (made T, err error) {
	kind, err := kindOfComponent(raw)
	if err != nil {
		return made, fmt.Errorf("%s: %w", role, err)
	}
	return named(role, kind, raw, known)
}

// kindOfComponent returns the name of the type of a component.
func kindOfComponent(raw json.RawMessage) (string, error) {
	var spec struct{ Type string }
	err := json.Unmarshal(raw, &spec)
	return spec.Type, err
}

// named makes a component of a type. Its errors name the place in the file, or the known types.
func named[T any](role, kind string, raw json.RawMessage, known map[string]builder[T]) (made T, err error) {
	build, ok := known[kind]
	if !ok {
		return made, fmt.Errorf("%s of type %q is not supported; supported are %s", role, kind, strings.Join(slices.Sorted(maps.Keys(known)), ", "))
	}
	if made, err = build(raw); err != nil {
		return made, fmt.Errorf("%s %s: %w", role, kind, err)
	}
	return made, nil
}

// absent reports whether a component is missing in a file.
func absent(raw json.RawMessage) bool {
	return len(raw) == 0 || bytes.Equal(raw, []byte("null"))
}

// builder makes a component from its part of a file.
type builder[T any] = func(raw json.RawMessage) (T, error)

// options is a builder that reads the options of a component first.
func options[S, T any](build func(S) (T, error)) builder[T] {
	return func(raw json.RawMessage) (made T, err error) {
		var spec S
		if err := json.Unmarshal(raw, &spec); err != nil {
			return made, err
		}
		return build(spec)
	}
}

// fixed returns the builder of a component that has no options: all of them are the same.
func fixed[T any](made T) builder[T] {
	return func(json.RawMessage) (T, error) { return made, nil }
}
