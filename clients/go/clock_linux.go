package primacy

import (
	"syscall"
	"unsafe"
)

// bootClock reads CLOCK_BOOTTIME in nanoseconds. It is the clock of the agent's points in time, and
// goes on while the machine is suspended. The clock of package time stands still then.
func bootClock() (int64, error) {
	const clockBoottime = 7
	var now syscall.Timespec
	// The standard library has no clock_gettime. The kernel writes into now and keeps no pointer.
	_, _, errno := syscall.Syscall(
		syscall.SYS_CLOCK_GETTIME, clockBoottime, uintptr(unsafe.Pointer(&now)), 0)
	if errno != 0 {
		return 0, errno
	}
	return now.Nano(), nil
}
