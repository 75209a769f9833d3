// Package dashboard is the page that the daemon serves to people. [Page] is one
// document with its styles and its program in it, made from the files beside
// this one; it asks nobody but the daemon that it came from, and [Policy] lets
// it do no more.
package dashboard
