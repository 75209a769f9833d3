// Package statefile opens the bbolt file that outlives the daemon, in a way that
// damage to it is an error and never worse.
//
// bbolt maps its file into memory and believes it. Where the file was cut,
// reading is a fault; where a page holds something else, bbolt panics; and where
// the length of a page does, it walks billions of pages that are not there, and
// notes each. So every page is read and checked before bbolt sees the file, and
// before each transaction the file must be as the last one left it.
package statefile
