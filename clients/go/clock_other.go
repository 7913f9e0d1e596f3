//go:build !linux

package primacy

import "errors"

// bootClock fails: the agent and its clock are there on Linux only. Programs compile elsewhere.
func bootClock() (int64, error) {
	return 0, errors.New("there is no CLOCK_BOOTTIME on this system")
}
