package worker

import "golang.org/x/sys/unix"

// home is the CPUs that the thread of a goroutine is bound to.
type home struct {
	worker *worker
	on     uint64 // see wire.Run, 0 for anywhere
}

// stay binds the thread to cores of the worker. If the system does not allow that, it stays where it
// was: that is slower and not wrong.
func (h *home) stay(on uint64) {
	if on == h.on || len(h.worker.cores) == 0 {
		return
	}
	set := h.worker.anywhere
	if on != 0 {
		set.Zero()
		for i, cpu := range h.worker.cores {
			if on&(1<<i) != 0 {
				set.Set(cpu)
			}
		}
	}
	if unix.SchedSetaffinity(0, &set) == nil {
		h.on = on
	}
}
