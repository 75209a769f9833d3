// Package loop is the scheduler goroutine of an instance: it takes in queries and
// what becomes of workers, decides by [overlap.Scheduler] what runs next, sends
// rounds to the workers and settles what became of them. It counts, logs and
// remembers nothing itself: it emits events and publishes a status (packages
// observe and status). Package daemon makes a [Backend] for each instance, starts,
// reloads and stops it; endpoints reach it as a query.Backend.
package loop
