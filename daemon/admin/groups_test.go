package admin

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// threadGroups sets the groups of this thread alone, as the kernel does. Go's
// own Setgroups would set those of all threads.
func threadGroups(groups []int) error {
	list := make([]uint32, len(groups))
	for i, g := range groups {
		list[i] = uint32(g)
	}
	_, _, errno := unix.RawSyscall(unix.SYS_SETGROUPS, uintptr(len(list)), uintptr(unsafe.Pointer(&list[0])), 0)
	if errno != 0 {
		return errno
	}
	return nil
}
