// Package journal writes down the events of a scheduler and what it decided,
// and makes the same decisions again from that.
//
// A [Scheduler] is an overlap.Scheduler that records every event, every
// question to the predictor and every decision. A [Writer] takes the records
// to a file on a goroutine of its own. The scheduler never waits for it:
// records that the writer cannot take are lost, and the log has how many.
// Every file begins with the whole state of the scheduler, so [Replay] needs
// no other file, and no predictor: it answers from the log. The format is
// described in docs/decision-log.md. The daemon records, where its configuration
// asks for it; the command overlapd replay replays.
package journal
