// Package training holds measurements of operator groups, from which predictors
// are fitted, and decides what is measured next.
//
// A [Dataset] is the groups measured on one device. It comes from a [Store] in the
// daemon's state file, or from CSV files in the form of docs/dataset.md
// ([ReadPath], [WriteCSV]). A [Session] decides what is run next while a daemon
// measures: each model alone, then groups as the scheduler forms them (Abacus,
// section 5.4), each until its median is known well enough. It is a state machine
// that runs nothing itself; package daemon/learning drives it. Fitting is in package
// training/fit, which only commands link.
package training
