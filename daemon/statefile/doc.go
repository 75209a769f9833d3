// Package statefile opens the bbolt file that outlives the daemon, in a way that
// damage to it is an error and never worse.
//
// bbolt maps its file into memory and believes it. Where the file was cut,
// reading is a fault; where a page holds something else, bbolt panics; and where
// the length of a page does, it walks billions of pages that are not there, and
// keeps each. So bbolt's own check of a file runs before it is opened for use, in
// a child process that may take only so much memory and time: whatever becomes
// of that, this process goes on. And before each transaction the file must be as
// the last one left it. Only the daemon and commands that look at its state open
// the file, by package daemon.
package statefile
