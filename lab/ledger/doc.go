// Package ledger measures what each rule of the policy overlap gains. A rule that gains
// nothing anywhere, or that costs more than it may somewhere, has no place in the scheduler.
//
// Each mix of services is simulated with the rule and without it, with the same queries. The
// ledger compares the highest load with at most 1 % violations, and the share of queries that
// are answered in time at twice that load. Run it with
//
//	make ledger
package ledger
