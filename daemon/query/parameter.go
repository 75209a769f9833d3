package query

import (
	"bytes"
	"math"
	"strings"
	"time"
	"unicode"
)

// Limits on a request that are not configurable. IDs are echoed and logged, parameters are
// scanned linearly, and a timeout must fit into a time.Duration.
const (
	MaxIDBytes     = 1 << 10
	MaxPriority    = math.MaxInt32
	MaxParameters  = 64 // for a request, and again for each tensor
	MaxTimeoutUsec = math.MaxInt64 / int64(time.Microsecond)
)

// Request parameters that choose the variant which answers. The response repeats the first
// with the name of the variant that did.
const (
	ParameterVariant       = "variant"
	ParameterLeastAccuracy = "least_accuracy"
)

// CheckParameter rejects a request parameter that overlapd does not implement and that
// changes the meaning of a request in Triton. Other unknown parameters are ignored.
func CheckParameter[S string | []byte](key S) *Error {
	if k := string(key); strings.HasPrefix(k, "sequence_") || strings.HasPrefix(k, "triton_") || k == "headers" {
		return Invalid("the parameter %q is reserved, and overlapd does not support it", Cut(k))
	}
	return nil
}

// CheckTensorParameter rejects a tensor parameter that asks for a feature overlapd does not
// implement.
func CheckTensorParameter[S string | []byte](key S) *Error {
	switch k := string(key); {
	case k == "classification":
		return Invalid("the parameter %q asks for something that overlapd does not support", k)
	case strings.HasPrefix(k, "shared_memory_"):
		return errSharedMemory
	}
	return nil
}

// SetID sets the client's name for the query. The ID appears in logs, so every character
// must be printable.
func (c *Call) SetID(id []byte) *Error {
	if len(id) > MaxIDBytes {
		return Invalid(`"id" has %d bytes, the limit is %d`, len(id), MaxIDBytes)
	}
	if bytes.ContainsFunc(id, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return Invalid(`"id" contains a character that is not printable`)
	}
	c.ID = append(c.ID[:0], id...)
	return nil
}

// AskVariant restricts the query to the variant with this name.
func (c *Call) AskVariant(name []byte) *Error {
	s := c.Service
	if err := s.hasVariants(ParameterVariant); err != nil {
		return err
	}
	for i := range s.Variants {
		if s.Variants[i].Name == string(name) {
			c.Variant = i
			return nil
		}
	}
	return Invalid("service %s has no variant %q: choose one of %s", s.Name, Cut(name), s.variants())
}

// AskAccuracy restricts the query to variants of at least this accuracy; 0 allows all. An
// accuracy that no variant reaches is an error.
func (c *Call) AskAccuracy(least float64) *Error {
	s := c.Service
	if err := s.hasVariants(ParameterLeastAccuracy); err != nil {
		return err
	}
	// The negated comparison rejects NaN as well.
	if !(least >= 0) || math.IsInf(least, 1) {
		return Invalid("the parameter %q must be a finite number, 0 or more, not %v", ParameterLeastAccuracy, least)
	}
	highest := 0.0
	for i := range s.Variants {
		highest = max(highest, s.Variants[i].Accuracy)
	}
	if least > highest {
		return Invalid("the parameter %q is %v, but the highest accuracy of a variant of %s is %v: request that or less",
			ParameterLeastAccuracy, least, s.Name, highest)
	}
	c.LeastAccuracy = least
	return nil
}

// checkVariant returns an error if the request names a variant that is less accurate than
// the request demands.
func (c *Call) checkVariant() *Error {
	if c.Variant < 0 {
		return nil
	}
	v := &c.Service.Variants[c.Variant]
	if v.Accuracy >= c.LeastAccuracy {
		return nil
	}
	return Invalid("the variant %s has an accuracy of %v, but the request needs at least %v: leave out %q or %q",
		v.Name, v.Accuracy, c.LeastAccuracy, ParameterVariant, ParameterLeastAccuracy)
}
