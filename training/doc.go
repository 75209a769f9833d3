// Package training turns measurement into a predictor. A [Dataset] holds
// measured operator groups; it comes from measuring on a device, or from CSV
// files. Fitting is in package fit, which only the training command links.
package training
