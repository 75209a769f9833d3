// Package journal writes down what a scheduler was told and what it decided,
// and makes the same decisions again from that.
//
// A [Scheduler] is an overlap.Scheduler that records every event, every
// question to the predictor and every decision. A [Writer] takes the records
// to a file on a goroutine of its own. The scheduler never waits for it:
// records that the writer cannot take are lost, and the log says how many.
// Every file begins with the whole state of the scheduler, so [Replay] needs
// no other file, and no predictor: it answers from the log. The format is
// described in docs/decision-log.md.
package journal
