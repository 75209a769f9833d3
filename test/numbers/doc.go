// Package numbers holds the numbers of the pages in docs/benchmarks to what commands print.
//
// Each table of a page says where its numbers come from. Those that are the same on every
// machine stand between two marks:
//
//	<!-- numbers: overlapd-lab reproduce shepherd --data $DATA --out $OUT --markdown # figure 9 -->
//	...
//	<!-- /numbers -->
//
// What is between them is what the command prints, of which "# figure 9" takes the lines
// below the heading of that name. A command that several blocks name runs once. Bash runs it
// in the root of the repository, with bin first in PATH; $OUT is a folder to leave files in,
// $DATA the folder with the papers' measurements, without which the block is skipped.
//
// Numbers that need a quiet machine or a device say what printed them, when and where, and are
// not checked: those up to the next heading of two signs, or below that of the page all:
//
//	<!-- measured: make bench-endpoint; 2026-11-23, two cores of an Intel Xeon -->
package numbers
