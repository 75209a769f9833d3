// Package topology finds the cores of a machine.
package topology

import (
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Usable returns the physical cores that this process may use, by NUMA node. It asks for the set of CPUs
// that the process is bound to, as by taskset or a container, and not for what the machine has.
func Usable() (nodes [][]int) {
	var set unix.CPUSet
	var usable []int
	if unix.SchedGetaffinity(0, &set) == nil {
		for cpu := range 64 * len(set) { // as many bits as the kernel's set has
			if set.IsSet(cpu) {
				usable = append(usable, cpu)
			}
		}
	}
	return Cores(os.DirFS("/sys/devices/system"), usable)
}

// Cores returns the physical cores among CPUs that a process may use, by NUMA node: of each core its
// first hyper-thread, because two threads of a core that compute share its vector units. A CPU that the
// tree does not describe is a core of its own, and a tree without nodes is one node.
func Cores(tree fs.FS, usable []int) (nodes [][]int) {
	// A core is known by the list of its threads, which the kernel gives to each of them.
	seen := map[string]bool{}
	var cores []int
	// The first thread of each core stands for it, whichever of them the process may use.
	for _, cpu := range usable {
		siblings, err := fs.ReadFile(tree, path.Join("cpu", "cpu"+strconv.Itoa(cpu), "topology", "thread_siblings_list"))
		if core := string(siblings); err != nil || !seen[core] {
			seen[core] = true
			cores = append(cores, cpu)
		}
	}
	// A kernel without NUMA has no such folders: then all cores are left for one node.
	lists, _ := fs.Glob(tree, "node/node*/cpulist")
	for _, name := range lists {
		text, err := fs.ReadFile(tree, name)
		if err != nil {
			continue
		}
		var node []int
		cores = slices.DeleteFunc(cores, func(cpu int) bool {
			if !listed(string(text), cpu) {
				return false
			}
			node = append(node, cpu)
			return true
		})
		if len(node) > 0 {
			nodes = append(nodes, node)
		}
	}
	if len(cores) > 0 {
		nodes = append(nodes, cores)
	}
	return nodes
}

// listed reports whether a list such as "0-3,8" has a CPU.
func listed(list string, cpu int) bool {
	for part := range strings.SplitSeq(strings.TrimSpace(list), ",") {
		first, last, isRange := strings.Cut(part, "-")
		if !isRange {
			last = first
		}
		// A range that is not one has no CPU: a core is then listed by no node, and is a node's own.
		from, err := strconv.Atoi(first)
		to, err2 := strconv.Atoi(last)
		if err == nil && err2 == nil && from <= cpu && cpu <= to {
			return true
		}
	}
	return false
}
