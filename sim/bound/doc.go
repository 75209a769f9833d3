// Package bound tells how few violations a schedule could have: one that knows
// all queries beforehand, stops and goes on where it likes, and always overlaps
// and merges as well as the device ever does. [Of] compares with the runs of
// package sim.
//
// # Why no schedule does better
//
// Let the work of a query be what its share of the best batch takes alone, over
// the largest gain of any group: the time that its spans take alone, as parts
// of their models, over that of the group. Then a group never does more work
// than it takes time. A schedule that answers a set of queries in time does all
// their work between their arrivals and their deadlines, at most one second of
// it in each second of each device. Dropping that it does each query's work
// whole, the most queries are done by taking those with the least work first,
// each as far as the intervals allow that hold its time: the work that fits is a
// polymatroid, for which the greedy algorithm is optimal. For few queries all
// sets of them are tried instead.
//
// # What it is not
//
// It is a bound, and no schedule may reach it: groups of the largest gain need
// the right partners at the right time. It is that of a device whose runs all
// take the middle of their time; single runs that are faster may beat it where
// the runs of a device spread. And the largest gain is that of the groups that
// were tried: of up to four spans that start and end at some operators of each
// model, in some sizes; [Bound].Tried says how many.
package bound
