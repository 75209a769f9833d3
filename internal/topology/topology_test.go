package topology

import (
	"fmt"
	"reflect"
	"testing"
	"testing/fstest"
)

// machine is a tree of a machine with hyper-threads: thread k of core c is CPU c + k*cores.
func machine(nodes, cores, threads int) fstest.MapFS {
	tree := fstest.MapFS{}
	for n := range nodes {
		list := ""
		for c := range cores {
			first := n*cores + c
			siblings := ""
			for k := range threads {
				siblings += fmt.Sprintf("%d,", first+k*nodes*cores)
			}
			for k := range threads {
				cpu := first + k*nodes*cores
				tree[fmt.Sprintf("cpu/cpu%d/topology/thread_siblings_list", cpu)] = &fstest.MapFile{Data: []byte(siblings[:len(siblings)-1] + "\n")}
			}
		}
		for k := range threads {
			first := n*cores + k*nodes*cores
			list += fmt.Sprintf("%d-%d,", first, first+cores-1)
		}
		tree[fmt.Sprintf("node/node%d/cpulist", n)] = &fstest.MapFile{Data: []byte(list[:len(list)-1] + "\n")}
	}
	return tree
}

func TestCores(t *testing.T) {
	all := func(n int) (cpus []int) {
		for i := range n {
			cpus = append(cpus, i)
		}
		return cpus
	}
	for name, c := range map[string]struct {
		tree   fstest.MapFS
		usable []int
		want   [][]int
	}{
		"a virtual machine of two cores":     {machine(1, 2, 1), all(2), [][]int{{0, 1}}},
		"hyper-threads":                      {machine(1, 4, 2), all(8), [][]int{{0, 1, 2, 3}}},
		"two nodes":                          {machine(2, 2, 2), all(8), [][]int{{0, 1}, {2, 3}}},
		"bound to second threads and a node": {machine(2, 2, 2), []int{4, 5}, [][]int{{4, 5}}},
		"both threads of one core":           {machine(2, 2, 2), []int{0, 4, 3}, [][]int{{0}, {3}}},
		"nothing is described":               {fstest.MapFS{}, []int{1, 5}, [][]int{{1, 5}}},
		"a node without its cores":           {fstest.MapFS{"node/node0/cpulist": {Data: []byte("0,x,2-\n")}}, []int{0, 1}, [][]int{{0}, {1}}},
	} {
		if got := Cores(c.tree, c.usable); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
