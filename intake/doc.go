// Package intake reads files that others wrote, and says what is wrong with
// one in a sentence that names the file, the line and what to do.
//
// [Open] opens a file and [NewText] sees that it is text. A [Table] is a CSV
// file, record by record; no line of it takes more memory than [MaxLineBytes].
// A [Kind] is a kind of JSON file: what it reads has no field that is unknown,
// no null in place of a value and nothing behind its end, and what it writes is
// there whole or not at all.
package intake
