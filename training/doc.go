// Package training holds measurements of operator groups, and decides what to measure next.
// Predictors are fitted to these measurements.
//
// A [Dataset] holds the groups measured on one device. It comes from a [Store] in the daemon's
// state file, or from CSV files in the form of docs/dataset.md ([ReadPath], [WriteCSV]). A
// [Session] plans the measurements of a daemon: first each model alone, then groups as the
// scheduler forms them (Abacus, section 5.4). It repeats each until its median is precise
// enough.
//
// A Session is a state machine that runs nothing itself; package daemon/learning drives it.
// Fitting is in package training/fit, which only commands link.
package training
