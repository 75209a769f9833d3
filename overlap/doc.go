// Package overlap decides, each round, which spans run together. Its
// [Scheduler] is a value with two doors: [Scheduler.Step] records an [Event], and
// [Scheduler.Ready] returns what the caller is to do next: answers, batches to free, to stop and to
// move, and the next [Round]. Time is an argument. It has no goroutine, clock, log or I/O, and
// the same events always give the same decisions, so that a daemon, a
// simulator and a test drive the same code:
//
//	for {
//		for {
//			r := s.Ready(now())
//			answer(r.Answers)
//			if r.Round != nil {
//				start(r.Round)
//			}
//			if wake = r.Wake; wake > now() || r.Round == nil && !r.Ended() {
//				break
//			}
//		}
//		s.Advance(now()) // plan ahead while devices are busy
//		e := wait(wake)  // until an event or a time: a query has come, a round is over
//		if err := s.Step(now(), e); err != nil {
//			refuse(e, err)
//		}
//	}
//
// All else that a Scheduler can be asked changes nothing. [Scheduler.Snapshot] copies its state,
// which [Restore] continues.
//
// All times are durations since one epoch that the caller chooses. A Scheduler
// is not safe for concurrent use: one goroutine owns it, and the [Predictor]
// with it. What Ready returns belongs to the scheduler and is valid until the next call.
//
// # Order
//
// A policy gives every waiting query and every paused batch a key. Equal keys
// are ordered by arrival, then by ID. All work of best-effort services comes
// after all other.
//
// A priority is a number: 1 is the highest, and 0, the default, comes after all
// others. Under overlap it decides who is postponed where there is not time for
// all (see Load shedding), and the deadline alone decides the order: to serve
// what is due later first would cost others their deadlines and gain nothing.
// Under the other policies the priority goes before the key.
//
// # Drops
//
// A query is dropped when its deadline passes before it runs, and when the
// group that it could be in is decided but the predictor says that even alone,
// and as long as it takes in the middle of its runs, it would end after its
// deadline. A query that could finish if it ran now is never dropped, and
// where the predictor knows nothing only the deadline counts, as it does for
// best effort.
//
// An estimate that only prevents work must expire: if every query were dropped by one that
// has become too high, nothing would run that could correct it. So a query that its
// estimate alone makes late explores now and then: it runs, alone, and before others of its
// priority under overlap. If it ends in time the next one may explore at once. If it is
// late its batch size and sequence length rest for 64 times the estimate, and its service
// for 16 times what it took, both for 30 s at most. So does a query that is late since it
// has waited, where nothing of its shape has run for the longest rest, and a variant that
// is not selected for its estimate.
//
// The sequential policies and abacus look at the most urgent work
// only, overlap at the head of each service. Where there is not enough time for
// all that waits, overlap postpones what takes longest, which then is dropped as
// everything else is (see Load shedding). The queries of a batch that has
// started share its fate: it is dropped when none of them can be answered in
// time any more.
//
// # Failures
//
// If a batch of several queries fails, one of them is at fault, and nobody can say which.
// Its queries are suspects: they are queued again in their usual order, each half of them is
// batched with nobody else, and no batch of them waits to grow. A half that fails clears the
// other half. A half that succeeds leaves the other one as the culprit's, which is halved again
// at once. So one bad query costs a batch of n about log2(n) further runs, and a query that
// was alone in its batch is answered with the failure.
//
// If a worker dies of a batch, its queries run again one by one instead: each further death
// would cost the time in which a worker starts. The one that dies alone is answered, and
// clears the others. Queries whose worker was lost for another reason run again in halves.
//
// # Overlap
//
// A decision of the policy overlap has three stages and one objective. It sheds: what of all that waits
// cannot be in time is postponed, and what is kept has a slack, by which it may be deferred and nothing
// of it is late (triage.go, trim.go). It forms a batch for each service, as large as its deadlines allow
// (merge.go). It packs (overlap.go, share.go): of the groups that end within the slack of what is kept,
// so that none of it is lost, it takes the one that gains most isolated time per time, or starts batches
// on shares of the device, if it has units and they gain more so. Each stage reads what the one before
// it has found and changes nothing that is accepted.
//
// The policy abacus runs the most urgent batch to its end in the next round. It
// adds others as Abacus does (section 6): in the order of their deadlines, as
// long as the predicted latency is within the headroom of the first. The
// policy overlap differs in this:
//
//   - What must fit is the bound of the estimate, and it must fit everybody
//     whose batch ends with the group and who could be in time alone. What is
//     left of a batch that does not end must be in time after it. The latency
//     serves for comparing gains, for the size of a batch where no other service has work, and for
//     drops: nobody is dropped for the sake of a margin.
//   - A span is added only if the group is then predicted to end before it
//     would if the span ran after it. Of those that fit, the most urgent one comes first.
//   - A span ends where the group gains most, not where it fills the headroom:
//     operators that run on when all others have ended overlap nothing, and
//     run as well beside those of the next round.
//   - A batch that nobody is found to run beside ends its round after a part of the
//     least target of the other services, and goes on in the next one: what arrives
//     for them meanwhile then runs beside the rest of it. Parts may take longer than the
//     whole: it does so only if what they all lose is within its slack.
//   - Queries of a service are merged where that saves time and all of them
//     stay in time. Spans from the same queue are the same operators on other
//     data, so nothing overlaps as well as they do.
//   - Where none may be merged, and one query would be the whole group, those behind it
//     join its batch while that is short ([Config].RoundTime), whatever the policy. The worker
//     runs such a batch query by query, so it takes as long as its queries one by one.
//   - On a device of [Config].Alone a group has one span. The policy abacus has that too. What has a
//     share of a device is no group, see Shares.
//   - Best effort gets what room is left: what the group saves, and the slack of all
//     that a triage has kept. With nothing else waiting it runs
//     for at most half of the least slack that a query of another service,
//     arriving just then, would have.
//
// # The ladder
//
// Where an engine has sessions of their own for batches of 1, 2, 4, 8 and so on, and any other
// size costs it a preparation ([models.Service].Ladder), queries are merged into batches of
// these sizes alone. A query of another size runs by itself, and pays.
//
// # Load shedding
//
// Where there is not enough time for all, earliest deadline first lets everything wait until it is
// late. So before it chooses, overlap finds out for which work there is no time, by Moore's rule
// (Management Science 15(1), 1968), which keeps as many queries as any choice could. It adds up
// what queries take in the order of deadlines, and whenever one would be late, postpones the longest
// so far. Of queries that take equally long it postpones the latest, but before these the most urgent
// one that leaves less than 1.8 times the isolated latency of the largest batch that it could be in,
// if its service has others: such a head would keep every batch small, or without time to overlap
// other work, and more would be late behind it. A query that can be batched with others counts with
// the middle between its isolated latency and its part of their batch, because not all of them will
// be batched. A batch that has started counts with the operators that are left, for each of its
// queries. If those that have run counted as well, a few operators that once filled a group would put
// the rest before all that is more urgent.
//
// Where all work is queries of one service that take equally long, none is the longest, and what a
// query costs is that its deadline makes a batch smaller. These are batched in the order of deadlines
// as they would run. If some would be late, or hardly any time is to spare, the most urgent are
// postponed, as few as possible, so that the others are in time and the next batch is as large as it
// could be.
//
// Priorities come first: nothing is postponed for what has a lower one, and that gets the time that is
// left: nothing is added to a group that would make something kept of a higher priority late. The
// suspects of a failed batch are postponed before all others of their priority: a service with bad
// queries pays for finding them, and not its neighbours. What is postponed waits until its service has
// nothing else, and fills the room that groups leave; a query may join a batch. With every decision
// the choice is made again.
//
// Whatever is asked of the predictor and does not depend on an answer is asked
// in one call, and ends are searched several at a time ([Config].Ways).
//
// # Devices
//
// A scheduler decides for a pool: the devices of [Config]. A query waits in the one
// queue of its service and is bound to a device when its batch starts, on which that
// then stays, since its intermediates are there, unless it follows a pipeline. [Scheduler.Ready] returns the next round
// of any device that is free, and what it decides for one is what it would with that
// device alone, of what can run there: the services whose worker on it is up, and the
// batches that it holds. A service of which no worker is on a device is down there, after an
// event [Down].
//
// But under overlap what can run on other devices, too, makes way for what cannot: no triage
// postpones a batch that has started. A query counts there with its part of the devices that it can
// run on, and as due so much earlier that it can run on one of them to its end.
//
// # Shares
//
// A device may consist of units ([Config].Units), as a CPU does of cores. There a round may be one span
// with some of the units to itself: 1, 2, 4 and so on, or all. Such rounds start whenever units are
// free, end when they end, and several batches of a service may run at once. What runs beside a span
// is part of what the predictor is asked ([models.Group].Beside).
//
// The most urgent batch that can be in time on the units that are free starts first, on the share with
// which it takes least of the device: units times latency, by its bound. What is left over when
// everything else that waits has the units that it needs makes its share larger, if it ends sooner for
// it. So one query alone has the whole device, and where many wait each runs as efficiently as
// possible; the time gained per time is what decides in either case, as it does in a group. A batch
// that is in time only on more units than are free waits for them, and what comes after it must have
// ended by then; a query that could have been in time on fewer if it had started at once does not hold
// others up. Where a batch takes longer than half of what an arriving query of another service could
// wait its round ends early, as that of a batch that is alone in a group does; the rest may have another
// share.
//
// On a CPU ([Config].Alone) queries of a service are merged into no larger batches than leave every unit
// its part of them. Where spans also overlap, an idle device gets a group, or a batch that has all of
// it, unless the batches that are there gain more on shares. While one of them runs, others start on the
// units that are left.
//
// In the triage a query counts with its isolated latency on the share with which it takes least of the
// device and is in time, divided by how many such shares there are; where spans overlap, on the whole
// device. An overrun keeps its units, but for one if it has all. While it runs its service starts nothing
// more, nor does a service while a suspect of it runs: if their worker died, both would seem to be at
// fault.
//
// # Pipelines
//
// The batches of a service that has pipelines ([models.Service]) move from device to
// device, as in PPipe (section 5). Its queued queries are no candidates. Instead
// [Scheduler.Ready] first reserves (section 5.4, package reserve): it forms the largest batch that
// ends in time on some way, by the timetables of devices and links, and drops a query that has no
// such way. A batch that is not full starts immediately if its way is free. Otherwise it waits until
// the way is free, so that more queries can join, but not longer than it can be in time. Of several
// pipelines, it takes the one on which a whole batch is in time and waits least. When there is not
// enough time for all queries, a query whose wait has made its batch smaller than planned is
// dropped, so that the queries after it are in whole batches.
//
// From then on the batch is like one that is paused before its first operator, on the
// first device of its way. Its rest ends where its stage does, and its deadline is
// earlier by what the stages and moves after that take. At the end of a stage its way on
// is found again, so that what took longer or shorter than it should is made good;
// [Ready] names it in its Moves when its links are free, and an event [Moved] lets it go
// on, or sends its queries back to the queue if its intermediates are lost. What moves
// take is learned. A device that is down is passed over, for another of the stage, or
// for the one that the batch is on.
//
// A reservation is a group with a start time, whatever the policy: nothing starts on a
// device that would end, by its bound, when it is too late for those who have reserved
// it and are not there yet, or come before it. So under edf a device runs one batch of a
// stage at a time, which is PPipe's own rule, and under overlap others join it where
// they fit. A new plan is an event [Change] for each service: batches keep the way
// that they are on, and nobody waits. The policy reactive reserves nothing ahead: a
// batch is formed when a device of its first stage is free.
//
// # Plans
//
// [Scheduler.Advance] decides ahead for the predicted end of the round that ends first,
// equation 3 of Abacus, so that the device need not wait for a decision. A
// decision reads the state as it will be then: batches whose spans do not end
// with the round wait at the operator that they will have reached, and what
// is past its deadline by then is gone. It changes nothing until Ready carries
// it out.
//
// A plan is overturned by a round that starts on another device, by every arrival, cancellation, loss, return or load of
// a worker, by a service that comes, changes or goes, by a span that did not run
// to its end, and by a deadline that passes unforeseen. What is left to Ready is one call of the predictor: what
// the plan drops must still be hopeless, and a group of more than one query
// must, by its bound and from the true start, keep to the limit that it was
// chosen for. Otherwise Ready decides afresh.
//
// So where rounds end when they were predicted to, decisions are those that
// would be made without plans. Where one ends at another time, a plan that is
// kept hurts nobody that a decision made then would have spared by that limit,
// but its group may be another one.
//
// # Overruns
//
// A round ends when its last span does, unless that takes longer than
// [Scheduler.Allowed]: then its event [Finish] has SpanOverrun for what still runs. Such
// a span goes on beside the rounds that follow, which its service, whose worker
// is busy, has no part in. Its queries are answered at their deadlines. When it
// has ended, another Finish has its outcome, and its batch goes on.
//
// # Services that come and go
//
// The events [Add], [Change] and [Remove] change the
// services while queries run. An ID is a position that a later service may
// have again once nothing is left of the one before. A model is replaced by a
// service of the same name beside it: the new one is added and goes up, new
// queries name it, the old one finishes what it has and is removed. What was
// promised to an accepted query stays, its deadline and its rank.
//
// # Answers
//
// Every accepted query gets exactly one [Answer], and only once no worker
// will touch its tensors again: a query that is cancelled while its batch
// runs, or while others in the batch still want it, is answered when the
// batch is over. Those of an overrun are answered before, and marked as InUse.
package overlap
