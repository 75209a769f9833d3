// Package mig divides a GPU into MIG instances as the configuration declares
// them, and gives back what it made.
//
// [Plan] is pure: from the facts of a device and the [Want] list it makes a
// [Layout], or returns why there is none. A Layout prints, for a dry run, and
// [Apply] carries it out. What was made is a [Record], which the caller keeps on
// disk: it is handed over before and after every step, so that whatever crashes
// in between, [Release] finds all that is ours and nothing else.
//
// Instances that are not in the record are used if they fit, never changed. A
// GPU is never reset. Apply and Release are for one caller at a time: package
// daemon/gpu. The host check plans, to show what a daemon would do.
package mig
