// Package fit fits predictors to measured operator groups, and says how far
// off they are on groups kept aside.
package fit
