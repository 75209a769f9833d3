package watching

import (
	"slices"
	"testing"
)

func TestDeployedNamesEachServiceOnce(t *testing.T) {
	r := &replayed{Services: []string{"", "b", "a", "b"}}
	if got := r.deployed(); !slices.Equal(got, []string{"b", "a"}) {
		t.Errorf("got %q", got)
	}
}
