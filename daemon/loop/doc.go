// Package loop is the scheduler goroutine of a daemon: it takes in queries and
// what becomes of workers, decides by [overlap.Scheduler] what runs next on each device
// of the pool, sends rounds to the workers and settles what became of them. It counts, logs and
// remembers nothing itself: it emits events and publishes a status (packages
// observe and status). Package daemon makes a [Backend], starts,
// reloads and stops it; endpoints reach it as a query.Backend.
package loop
