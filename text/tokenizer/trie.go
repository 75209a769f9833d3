package tokenizer

import (
	"cmp"
	"slices"
)

// none stands for "no ID" and "no node".
const none = -1

// entry is a word of a vocabulary and its ID.
type entry struct {
	word string
	id   int32
}

// trie finds words by their bytes: exactly, the longest at a place, or all at a place. Nodes are numbered
// breadth first, so that the children of a node are neighbours. A node takes nine bytes.
type trie struct {
	label []byte  // the byte that leads to a node
	first []int32 // the children of node n are first[n] to first[n+1]-1
	id    []int32 // of the word that ends at a node, or none
	root  [256]int32
}

// newTrie builds a trie. Of two entries with the same word, the later counts.
func newTrie(entries []entry) *trie {
	slices.SortStableFunc(entries, func(a, b entry) int { return cmp.Compare(a.word, b.word) })
	kept := entries[:0]
	for i, e := range entries {
		if i+1 == len(entries) || entries[i+1].word != e.word {
			kept = append(kept, e)
		}
	}
	// Sorted, the words below a node are neighbours, and the one that ends at it is the first of them.
	// A node is a run of the sorted words with a common prefix.
	type run struct{ from, to, depth int32 }
	runs := []run{{0, int32(len(kept)), 0}}
	t := &trie{label: []byte{0}}
	for n := 0; n < len(runs); n++ {
		r := runs[n]
		id := int32(none)
		if r.from < r.to && len(kept[r.from].word) == int(r.depth) {
			id = kept[r.from].id
			r.from++
		}
		t.id = append(t.id, id)
		t.first = append(t.first, int32(len(runs)))
		for r.from < r.to {
			next := kept[r.from].word[r.depth]
			to := r.from + 1
			for to < r.to && kept[to].word[r.depth] == next {
				to++
			}
			runs = append(runs, run{r.from, to, r.depth + 1})
			t.label = append(t.label, next)
			r.from = to
		}
	}
	t.first = append(t.first, int32(len(runs))) // so that the last node has an end as well
	// The root has more children than others and is asked for every byte of a text: it has a table.
	for b := range t.root {
		t.root[b] = none
	}
	for n := t.first[0]; n < t.first[1]; n++ {
		t.root[t.label[n]] = n
	}
	return t
}

// step returns the child of a node for a byte, or none.
func (t *trie) step(node int32, b byte) int32 {
	if node == 0 {
		return t.root[b]
	}
	// The children are sorted by their bytes.
	low, high := t.first[node], t.first[node+1]
	for low < high {
		middle := (low + high) / 2
		switch l := t.label[middle]; {
		case l == b:
			return middle
		case l < b:
			low = middle + 1
		default:
			high = middle
		}
	}
	return none
}

// walk returns the node that a text leads to from a node, or none.
func (t *trie) walk(node int32, text string) int32 {
	for i := 0; i < len(text) && node != none; i++ {
		node = t.step(node, text[i])
	}
	return node
}

// at returns the ID of the word that ends at a node, or none.
func (t *trie) at(node int32) int32 {
	if node == none {
		return none
	}
	return t.id[node]
}

// find returns the ID of a word, or none.
func (t *trie) find(word string) int32 { return t.at(t.walk(0, word)) }

// longest returns the ID and the length of the longest word that a text starts with, beginning at a
// node. The length is 0 if there is none.
func (t *trie) longest(node int32, text string) (id int32, length int) {
	id = none
	for i := 0; i < len(text); i++ {
		if node = t.step(node, text[i]); node == none {
			break
		}
		if t.id[node] != none {
			id, length = t.id[node], i+1
		}
	}
	return id, length
}
