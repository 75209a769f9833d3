// Package journal writes down the events of a scheduler and its decisions,
// and makes the same decisions again from that.
//
// A [Tee] passes events on to an overlap.Scheduler and records each of them, with every question to
// the predictor and everything that the scheduler returned. A [Writer] writes the records
// to a file on a goroutine of its own. The scheduler never waits for it:
// records that the writer cannot take are lost, and the log has their number.
// Every file begins with the whole state of the scheduler, so [Replay] needs
// no other file, and no predictor: it feeds the records to a Tee again, which asks the log, and
// compares. docs/decision-log.md describes the format. The daemon records if its configuration
// asks for it; the command overlapd replay replays.
package journal
