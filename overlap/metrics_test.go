package overlap

import (
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Every counter is added to its own.
func TestServiceMetricsAdd(t *testing.T) {
	var one ServiceMetrics
	v := reflect.ValueOf(&one).Elem()
	n := 0
	fill(v, &n)
	one.Name, one.Down = "one", true
	sum := ServiceMetrics{Name: "sum"}
	sum.Add(one)
	sum.Add(one)
	want := one
	double(reflect.ValueOf(&want).Elem())
	want.Name, want.Down = "sum", false
	if diff := cmp.Diff(want, sum); diff != "" {
		t.Error(diff)
	}
}

func fill(v reflect.Value, n *int) {
	each(v, func(f reflect.Value) {
		if *n++; f.CanInt() {
			f.SetInt(int64(*n))
		} else {
			f.SetUint(uint64(*n))
		}
	})
}

func double(v reflect.Value) {
	each(v, func(f reflect.Value) {
		if f.CanInt() {
			f.SetInt(2 * f.Int())
		} else {
			f.SetUint(2 * f.Uint())
		}
	})
}

// each visits the numbers of a struct.
func each(v reflect.Value, do func(reflect.Value)) {
	for i := range v.NumField() {
		switch f := v.Field(i); {
		case f.Kind() == reflect.Array:
			for j := range f.Len() {
				do(f.Index(j))
			}
		case f.CanInt() || f.CanUint():
			do(f)
		}
	}
}
