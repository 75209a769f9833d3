package main

import (
	"slices"
	"testing"

	"github.com/overlapd/overlapd/overlap/journal"
)

func TestDeployedNamesEachServiceOnce(t *testing.T) {
	r := &journal.Report{Services: []string{"", "b", "a", "b"}}
	if got := deployed(r); !slices.Equal(got, []string{"b", "a"}) {
		t.Errorf("got %q", got)
	}
}
