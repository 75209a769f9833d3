package config

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestFindLines(t *testing.T) {
	for name, tt := range map[string]struct {
		file string
		want lines
	}{
		"empty":   {"", lines{}},
		"comment": {"# a = 1\n\n", lines{}},
		"keys":    {"a = 1\n\n# b\nb = \"\"\"\nc = 1\n\"\"\"\nd = 2", lines{"a": 1, "b": 4, "d": 7}},
		"tables":  {"[t]\na = 1\n[t.u]\na = 1\n[v]\nb = 1\n", lines{"t": 1, "t.a": 2, "t.u": 3, "t.u.a": 4, "v": 5, "v.b": 6}},
		"dotted":  {"[t]\nu.v = 1\n\"w.x\".y = 2\n", lines{"t": 1, "t.u.v": 2, "t.w.x.y": 3}},
		"arrays of tables": {"[[s]]\na = 1\n[[s]]\n\na = 2\n[[r]]\n[[s]]\n", lines{
			"s[0]": 1, "s[0].a": 2, "s[1]": 3, "s[1].a": 5, "r[0]": 6, "s[2]": 7}},
		"arrays within": {"[[s]]\n[[s.v]]\na = 1\n[[s.v]]\n[[s]]\n[[s.v]]\na = 2\n", lines{
			"s[0]": 1, "s[0].v[0]": 2, "s[0].v[0].a": 3, "s[0].v[1]": 4, "s[1]": 5, "s[1].v[0]": 6, "s[1].v[0].a": 7}},
		"inline": {"s = [{a = 1},\n {b = {c = 2}}]\nt = [[1, 2], [{d = 3}]]\n", lines{
			"s": 1, "s[0].a": 1, "s[1].b": 2, "s[1].b.c": 2, "t": 3, "t[1][0].d": 3}},
	} {
		if diff := cmp.Diff(tt.want, findLines([]byte(tt.file))); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}
