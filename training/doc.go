// Package training turns measurement into a predictor. A [Dataset] holds
// measured operator groups. They come from a [Session], which decides what is
// run next while groups that a [Session] yields are measured, or from CSV files
// in the form of docs/dataset.md. Fitting is in package fit, which only the
// training command links.
package training
