package journal

import (
	"fmt"
	"time"
)

// Limits of a log.
const (
	MinFileBytes     = 1 << 12
	MaxFiles         = 1000
	MaxLineBytes     = 64 << 20
	MinFlushInterval = time.Millisecond

	// bufferBytes is what a buffer between the scheduler and the writer
	// holds, unless one record is longer; buffers is how many there are.
	bufferBytes = 64 << 10
	buffers     = 16
)

// Options of a Writer.
type Options struct {
	MaxFileBytes  int64         // of records in a file, besides its checkpoint; then the next is begun
	MaxFiles      int           // that are kept
	FlushInterval time.Duration // after which a record is in the file at the latest
	RetryInterval time.Duration // between two attempts after a failure

	// Stopped is called when the log cannot be written, Resumed when it can
	// be again, both on the writer's goroutine.
	Stopped func(err error)
	Resumed func(lost uint64)
}

// DefaultOptions returns the options of a daemon.
func DefaultOptions() Options {
	return Options{MaxFileBytes: 64 << 20, MaxFiles: 4, FlushInterval: time.Second, RetryInterval: 10 * time.Second}
}

func (o *Options) validate() error {
	switch {
	case o.MaxFileBytes < MinFileBytes:
		return fmt.Errorf("%w: %d bytes in a file: want at least %d", ErrOptions, o.MaxFileBytes, MinFileBytes)
	case o.MaxFiles < 1 || o.MaxFiles > MaxFiles:
		return fmt.Errorf("%w: %d files: want 1 to %d", ErrOptions, o.MaxFiles, MaxFiles)
	case o.FlushInterval < MinFlushInterval || o.RetryInterval < MinFlushInterval:
		return fmt.Errorf("%w: intervals %v and %v: want at least %v", ErrOptions, o.FlushInterval, o.RetryInterval, MinFlushInterval)
	}
	return nil
}
