// Package admin changes a running daemon, and lets only those ask who may: over
// a Unix socket, by the credentials that the kernel gives of whoever connects.
// What [Listen] returns answers there, [Client] asks, and [Reloads] sees to it that one
// reload runs at a time, whoever wants it.
//
// It is HTTP, so that curl --unix-socket does as well:
//
//	POST /reload                  read the configuration again; JSON lines of progress, then how it ended
//	GET  /reload                  the reload that runs, or the last one
//	POST /services/NAME/restart   try a service again that was given up
//	GET  /config                  the configuration that holds now
//
// What a reload or a restart does, and what is logged of it, is the host's
// business.
package admin
