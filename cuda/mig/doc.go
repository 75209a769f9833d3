// Package mig divides a GPU into the MIG instances that the configuration declares, and
// removes the instances it created.
//
// [Plan] is a pure function: it turns the facts about a device and the list of [Want] into
// a [Layout], or returns why that is impossible. A Layout can be printed for a dry run, and
// [Apply] carries it out. A [Record] lists what was created. The caller keeps it on disk;
// it is passed to the caller before and after every step, so that after a crash at any
// point [Release] finds everything that is ours and nothing else.
//
// Instances that are not in the record are used if they fit, but never changed. A GPU is
// never reset. Apply and Release must not run concurrently; package daemon/gpu calls
// them. Package hostcheck only plans, to show what a daemon would do.
package mig
