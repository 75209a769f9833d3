// Package journal records the events of a scheduler and its decisions, and makes the same decisions
// again from the record.
//
// A [Tee] passes events on to an overlap.Scheduler and makes a [Record] of each, with every question
// to the predictor and everything that the scheduler returned. A [Writer] writes records to files on
// a goroutine of its own. The scheduler never waits for it: records that it cannot take are lost,
// and the next file starts with their number. Every file starts with a [Header], which holds the
// whole state of the scheduler, so [Replay] needs no other file, and no predictor: it feeds the
// records to a Tee whose predictors answer from the log, and compares. docs/decision-log.md
// describes the format.
package journal
