package worker

import "golang.org/x/sys/unix"

// cpus are those that runs can be bound to, and all those that the process may use.
type cpus struct {
	cores    []int // as wire.LoadSpec has them, none if runs are not bound
	anywhere unix.CPUSet
}

// use has runs bound to cores, if the system says where the process may run.
func (c *cpus) use(cores []int) {
	if unix.SchedGetaffinity(0, &c.anywhere) == nil {
		c.cores = cores
	}
}

// home is the CPUs that the thread of a goroutine is bound to.
type home struct {
	*cpus
	on uint64 // see wire.Run, 0 for anywhere
}

// stay binds the thread to cores. If the system does not allow that, it stays where it was: that is
// slower and not wrong.
func (h *home) stay(on uint64) {
	if on == h.on || len(h.cores) == 0 {
		return
	}
	set := h.anywhere
	if on != 0 {
		set.Zero()
		for i, cpu := range h.cores {
			if on&(1<<i) != 0 {
				set.Set(cpu)
			}
		}
	}
	if unix.SchedSetaffinity(0, &set) == nil {
		h.on = on
	}
}
