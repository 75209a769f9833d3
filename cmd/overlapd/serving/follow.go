package serving

import (
	"context"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/overlapd/overlapd/daemon/config/triton"
	"github.com/overlapd/overlapd/internal/textfile"
)

// changes returns a function that reports each change of what the flags name, or nil if
// nothing is followed. It compares with the state at the time of this call.
func (o *Options) changes() func(stopping context.Context, changed chan<- os.Signal) {
	look, path, period := o.look, o.Path, followPeriod
	switch {
	case o.control == controlPoll:
		path, period = o.repository, time.Duration(o.pollSecs)*time.Second
		look = func() string { return triton.Fingerprint(o.repository) }
	case !o.follow:
		return nil
	}
	// A file system that hangs is reported when the configuration is read.
	limit, cancel := context.WithTimeout(context.Background(), followPeriod)
	defer cancel()
	read, _ := textfile.Within(limit, path, func() (string, error) { return look(), nil })
	return func(stopping context.Context, changed chan<- os.Signal) {
		follow(stopping, path, look, read, period, changed)
	}
}

// look returns the stamp of the configuration file, "" if there is none at the moment.
func (o *Options) look() string {
	info, err := os.Stat(o.Path)
	if err != nil {
		return ""
	}
	return triton.Stamp(info)
}

// followPeriod is how often a file that is followed is looked at, and how long a change must
// last before it is read.
const followPeriod = 2 * time.Second

// follow asks for a reload once look does not return what was read and has returned the same
// twice, so that a file that is still written is left alone. It looks at what the name at path
// leads to: where Kubernetes mounts a ConfigMap, names are links that lead elsewhere after a
// change. It looks again and again because the kernel's events are of folders, of which there
// are several on that way, and do not come from network file systems.
func follow(stopping context.Context, path string, look func() string, read string, period time.Duration, changed chan<- os.Signal) {
	last := read
	for wait := period; ; {
		select {
		case <-stopping.Done():
			return
		case <-time.After(wait):
		}
		now, err := textfile.Within(stopping, path, func() (string, error) { return look(), nil })
		if err != nil || now == "" {
			continue // it is being replaced, or its folder is not mounted at the moment
		}
		if wait = period; now != last {
			wait = min(period, followPeriod)
		} else if now != read {
			select {
			case changed <- unix.SIGHUP:
			default: // the next reload is still to come
			}
			read = now
		}
		last = now
	}
}
