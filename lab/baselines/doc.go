// Package baselines implements the policies of Symphony, Shepherd and Nexus, with which
// simulations compare overlapd. They match batches with devices that run one batch at a
// time (Symphony, section 3.2; Shepherd, section 5): each service has one offer, the batch
// that it would start next, and a policy says from when on an offer may start and which
// offer comes first.
//
// [New] returns a scheduler for [sim.Scenario]. It serves what simulations of these papers
// need: dynamic batching, priorities, best effort, lost workers and cancellations. It has
// no variants and no pipelines, and no round of it is an overrun.
//
// The queries of a service must all have the same priority, as in a scenario.
package baselines
