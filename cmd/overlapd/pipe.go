package main

import (
	"os"
	"os/signal"

	"golang.org/x/sys/unix"
)

// outliveLog makes writing to a log that nobody reads any more an error of that
// writing. Go ends a program by SIGPIPE for it, which is right for a command
// and wrong for a daemon: who reads its log may be restarted. The signal is
// caught, not ignored, for children would inherit that.
func outliveLog() (release func()) {
	pipes := make(chan os.Signal, 1) // nobody reads it; what is too much is dropped
	signal.Notify(pipes, unix.SIGPIPE)
	return func() { signal.Stop(pipes) }
}
