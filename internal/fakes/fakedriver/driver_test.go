package fakedriver

import (
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// TestNumbers holds the words and the calls to those of the C source.
func TestNumbers(t *testing.T) {
	text := regexp.MustCompile(`(?s)/\*.*?\*/`).ReplaceAllString(string(source), "")
	enum := func(begin string) map[string]int {
		_, rest, _ := strings.Cut(text, begin)
		body, _, _ := strings.Cut(rest, "};")
		names, next := map[string]int{}, 0
		for _, field := range strings.Split(body, ",") {
			name, value, given := strings.Cut(strings.TrimSpace(field), " = ")
			if n, err := strconv.Atoi(value); err == nil {
				next = n
			} else if given {
				next = names[value]
			}
			if name != "" {
				names[name] = next
			}
			next++
		}
		return names
	}
	page, calls := enum("enum {"), enum("enum call {")
	for name, got := range map[string]int{
		"MEMORY_LIMIT": MemoryLimit, "IDENTITY": Identity, "DEVICES": Devices, "MEMORY_TAKEN": MemoryTaken, "UNREADY": Unready, "THREAD": Thread, "MPS": MPS, "RECORDS": Records,
		"BYTES": Bytes, "ALLOCATIONS": Allocations, "STREAMS": Streams, "EVENTS": Events, "PINS": Pins, "CONTEXTS": Contexts, "PENDING": Pending,
		"COPIES_IN": CopiesIn, "COPIES_OUT": CopiesOut, "SYNCS": Syncs, "FAULTS": Faults, "STICKY": Sticky, "FLAGS": Flags,
		"CALLS": called, "FAIL_AFTER": failAfter, "FAIL_WITH": failWith, "WORDS": words,
	} {
		if want, ok := page[name]; !ok || got != want {
			t.Errorf("%s is word %d of the source (there: %t), and %d here", name, want, ok, got)
		}
	}
	for name, got := range map[string]int{
		"INIT": CallInit, "COUNT": CallCount, "UUID": CallUUID, "SET_FLAGS": CallSetFlags, "RETAIN": CallRetain, "RELEASE": CallRelease,
		"STREAM_CREATE": CallStreamCreate, "STREAM_DESTROY": CallStreamDestroy, "STREAM_SYNC": CallStreamSync,
		"EVENT_CREATE": CallEventCreate, "EVENT_DESTROY": CallEventDestroy, "EVENT_RECORD": CallEventRecord, "EVENT_QUERY": CallEventQuery, "EVENT_SYNC": CallEventSync,
		"ALLOC": CallAlloc, "FREE": CallFree, "INFO": CallInfo, "COPY_IN": CallCopyIn, "COPY_OUT": CallCopyOut, "PIN": CallPin, "UNPIN": CallUnpin,
	} {
		if want, ok := calls[name]; !ok || got != want {
			t.Errorf("%s is call %d of the source (there: %t), and %d here", name, want, ok, got)
		}
	}
}
