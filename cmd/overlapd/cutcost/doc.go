// Package cutcost measures what it costs to run a model operator by operator
// instead of as a whole: time, taken in turns within one process, and resident
// memory, each in a process of its own. [Probe] does one measurement in this
// process; [Run] starts the processes and puts a [Report] together.
package cutcost
