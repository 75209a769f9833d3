// Package statefile opens the bbolt file that holds the daemon's state, so that damage to
// it is reported as an error and cannot take the daemon down. Its main type is [File];
// [RunCheck] is the part of a child process.
//
// bbolt maps its file into memory and trusts its contents. If the file was truncated,
// reading it faults. If a page has the wrong contents, bbolt panics. If the length of a
// page is wrong, bbolt walks billions of pages that do not exist and keeps each. Therefore
// bbolt's own check runs before the file is opened for use, in a child process with limited
// memory and time. Before each transaction, the file must be as the last one left it.
//
// Only the daemon, and commands that inspect its state, open the file.
package statefile
