package primacy

import (
	"context"
	"sync/atomic"
	"time"
)

// checkMax is the longest time between two looks at the boot clock. Timers stand still while the
// machine is suspended, so a loss is told at most this much late after it. IsCurrent is never late.
const checkMax = 500 * time.Millisecond

// Leadership is the right to act as the leader for a limited time. Its methods may be called from
// several goroutines.
type Leadership struct {
	candidate *Candidate
	conn      *connection
	token     uint64
	// until is the last deadline that was read, on the boot clock; 0 once it is over.
	until atomic.Int64
	lost  chan struct{}

	// The rest is under the candidate's lock.

	stop, deadline int64
	// by is when draining work must have stopped.
	by *int64
	// isTold: the agent knows that it ends, and extends it no more.
	isLost, isTold, isClosed bool
	reason, why              string
	timer                    *time.Timer
}

// newLeadershipLocked is a leadership that begins.
func newLeadershipLocked(c *Candidate, conn *connection, n *news) *Leadership {
	l := &Leadership{candidate: c, conn: conn, token: uint64(*n.Token), lost: make(chan struct{})}
	l.stop, l.deadline = *n.StopNS, *n.DeadlineNS
	l.until.Store(l.deadline)
	l.timer = time.AfterFunc(l.untilCheckLocked(), l.check)
	return l
}

// Token is the fencing token of this leadership, larger than all before it.
func (l *Leadership) Token() uint64 { return l.token }

// IsCurrent tells whether this program leads now: it was not told that it lost, it has not closed
// the leadership, and the boot clock is before the last deadline that it has read. It costs one
// system call.
func (l *Leadership) IsCurrent() bool { return l.Remaining() > 0 }

// Remaining is for how long this program leads unless the leadership is extended; 0 if it does not.
func (l *Leadership) Remaining() time.Duration { return l.untilTime(l.until.Load()) }

// Grace is how long the work may go on until it must have stopped: until the deadline, or until an
// earlier moment that the agent has named when it told the work to stop. It is 0 after that.
func (l *Leadership) Grace() time.Duration {
	until := l.until.Load()
	l.candidate.mu.Lock()
	if l.by != nil && *l.by < until {
		until = *l.by
	}
	l.candidate.mu.Unlock()
	return l.untilTime(until)
}

// Lost is closed when the work must stop: the agent says so, or did not extend the leadership in
// time, or the candidate was closed. IsCurrent may be true for the time of Grace then. Close closes
// it as well.
func (l *Leadership) Lost() <-chan struct{} { return l.lost }

// Reason says in a word why the work must stop, as "deposed" or "expired"; "silent" if the
// agent did not extend the leadership in time, "resigned" if the program has closed it, "closed" if
// it has closed the candidate. It is empty before Lost is closed.
func (l *Leadership) Reason() string {
	l.candidate.mu.Lock()
	defer l.candidate.mu.Unlock()
	return l.reason
}

// Why is the reason as a sentence for people.
func (l *Leadership) Why() string {
	l.candidate.mu.Lock()
	defer l.candidate.mu.Unlock()
	return l.why
}

// Context is a context that is cancelled when Lost is closed, or with its parent.
func (l *Leadership) Context(parent context.Context) context.Context {
	ctx, cancel := context.WithCancel(parent)
	select {
	case <-l.lost:
		cancel()
		return ctx
	default:
	}
	go func() {
		defer cancel()
		select {
		case <-l.lost:
		case <-ctx.Done():
		}
	}()
	return ctx
}

// Close says that all work of this leadership has stopped, and gives it back, so that another
// candidate can lead at once. This candidate waits behind the others then. Call it only when nothing
// works any more, and also after a loss: the next leadership is handed out after it. Calls after the
// first do nothing. If the connection has ended, the leadership lasts until its deadline all the
// same.
func (l *Leadership) Close() {
	c := l.candidate
	c.mu.Lock()
	if l.isClosed {
		c.mu.Unlock()
		return
	}
	l.endLocked()
	if !l.isLost {
		l.isLost, l.reason, l.why = true, "resigned", "the program has closed its leadership"
		close(l.lost)
	}
	if c.held == l {
		c.held = nil
	}
	isClosed := c.isClosed
	c.changed.tell()
	c.mu.Unlock()
	l.tellStopped()
	if isClosed {
		l.conn.close()
	}
}

func (l *Leadership) tellStopped() { _ = l.conn.send(stoppedFrame{"stopped", token(l.token)}) }

// untilTime is the time until a moment of the boot clock, or 0.
func (l *Leadership) untilTime(moment int64) time.Duration {
	now, err := l.candidate.options.clock()
	if err != nil || now >= moment {
		return 0
	}
	return time.Duration(moment - now)
}

// check tells a loss that nobody else tells.
func (l *Leadership) check() {
	c := l.candidate
	c.mu.Lock()
	dropped := l.checkLocked()
	c.mu.Unlock()
	if dropped != nil {
		dropped()
	}
}

// checkLocked looks at the clock. If the leadership was not handed out and has ended, it is dropped,
// and the result tells the agent.
func (l *Leadership) checkLocked() func() {
	c := l.candidate
	if l.isClosed {
		return nil
	}
	if !l.isLost && l.untilTime(l.stop) == 0 {
		l.notExtendedLocked()
		if l == c.kept {
			return c.dropLocked()
		}
	}
	if l.isLost && l.untilTime(l.deadline) == 0 {
		l.until.Store(0)
		if !l.isTold || c.isClosed {
			// The agent may go on with a leadership for which nobody is to work any more.
			l.conn.close()
		}
		return nil
	}
	l.timer.Reset(l.untilCheckLocked())
	return nil
}

// untilCheckLocked is when the clock is to be looked at next.
func (l *Leadership) untilCheckLocked() time.Duration {
	due := l.stop
	if l.isLost {
		due = l.deadline
	}
	left := l.untilTime(due)
	if left > checkMax {
		return checkMax
	}
	return left
}

// extendedLocked puts both points off. After a loss, the time to stop does not get longer. An
// extension that is read too late is none, also if the timer is late as well.
func (l *Leadership) extendedLocked(stop, deadline int64) {
	if !l.isLost && !l.isClosed && l.untilTime(l.stop) == 0 {
		l.notExtendedLocked()
	}
	if l.isLost || l.isClosed {
		return
	}
	l.stop, l.deadline = stop, deadline
	l.until.Store(deadline)
}

func (l *Leadership) drainingLocked(by int64, reason, why string) {
	l.isTold, l.by = true, &by
	l.loseLocked(reason, why)
}

func (l *Leadership) lostLocked(reason, why string) {
	l.isTold = true
	l.until.Store(0)
	l.loseLocked(reason, why)
}

func (l *Leadership) notExtendedLocked() {
	l.loseLocked("silent", "the agent did not extend the leadership in time")
}

// replacedLocked ends a leadership after which another was granted.
func (l *Leadership) replacedLocked() {
	l.lostLocked("lost", "another leadership has begun")
}

// loseLocked tells the program once that it must stop.
func (l *Leadership) loseLocked(reason, why string) {
	if l.isLost {
		return
	}
	l.isLost, l.reason, l.why = true, reason, why
	close(l.lost)
	if l == l.candidate.held && l.candidate.options.OnLost != nil {
		go l.candidate.options.OnLost(l)
	}
	l.timer.Reset(l.untilCheckLocked())
}

// endLocked ends it on the program's side: nothing works for it.
func (l *Leadership) endLocked() {
	l.isClosed = true
	l.until.Store(0)
	l.timer.Stop()
}
