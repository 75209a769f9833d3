package textfile

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

const (
	// readTimeout is how long a file system may take to read a text file.
	readTimeout = 10 * time.Second

	// maxHanging is the number of files whose reads may hang before no other file is read.
	maxHanging = 64
)

// errHangs is returned when a file system does not answer.
var errHangs = errors.New("its file system does not answer")

// hanging counts, by path, the reads that were abandoned and have not returned yet.
var hanging = struct {
	sync.Mutex
	reads map[string]int
}{reads: map[string]int{}}

// Within returns the result of read, which reads the file at path, or an error once ctx has
// ended. A system call on a hanging file system cannot be cancelled. Within then abandons read,
// which keeps running, so read must not change anything its caller still uses. Until read has
// returned, Within rejects the path, which bounds the number of hanging goroutines.
func Within[T any](ctx context.Context, path string, read func() (T, error)) (value T, err error) {
	hanging.Lock()
	again, others := hanging.reads[path] > 0, len(hanging.reads)
	hanging.Unlock()
	switch {
	case again:
		return value, &Fault{File: path, Err: fmt.Errorf("%w: an earlier attempt to read it has not returned; repair the file system, or name a file elsewhere: %w", errHangs, context.DeadlineExceeded)}
	case others >= maxHanging:
		return value, &Fault{File: path, Err: fmt.Errorf("not read, since attempts to read %d other files have not returned; repair their file system", others)}
	}
	began := time.Now()
	var got T
	// The buffer lets an abandoned read finish without a receiver.
	done := make(chan error, 1)
	go func() {
		var err error
		got, err = read()
		done <- err
	}()
	select {
	case err = <-done:
		return got, err
	case <-ctx.Done():
	}
	abandon(path, done)
	if err = context.Cause(ctx); errors.Is(err, context.DeadlineExceeded) {
		err = &Fault{File: path, Err: fmt.Errorf("%w within %v: %w", errHangs, time.Since(began).Round(time.Millisecond), err)}
	}
	return value, err
}

// abandon counts a read as hanging until it is done.
func abandon(path string, done <-chan error) {
	count := func(n int) {
		hanging.Lock()
		defer hanging.Unlock()
		if hanging.reads[path] += n; hanging.reads[path] == 0 {
			delete(hanging.reads, path)
		}
	}
	count(1)
	go func() {
		<-done
		count(-1)
	}()
}
