package training

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestWithout(t *testing.T) {
	known := mustRead(t, pairHeader+"b,0,5,1,0,c,0,5,1,0,2,2,1\nb,0,5,1,0,c,0,5,1,0,3,3,1\n")
	d := mustRead(t, pairHeader+`b,0,5,1,0,c,0,5,1,0,2,2,1
a,0,5,1,0,c,0,5,1,0,2,2,1
a,0,5,1,0,c,0,5,1,0,2,2,1
b,0,5,2,0,c,0,5,1,0,3,3,1
b,0,5,1,0,c,0,5,1,0,3,3,0
`)
	rest := d.Without(known)
	if err := rest.Check(); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff(d.Rows[1:], rest.Rows); diff != "" {
		t.Error(diff)
	}
	if again := d.Without(d); len(again.Rows) != 0 {
		t.Errorf("without itself it has %+v", again.Rows)
	}
}
