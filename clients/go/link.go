package primacy

import (
	"context"
	"errors"
	"math/rand"
	"os"
	"sync"
	"time"
)

const (
	delayMin = 50 * time.Millisecond
	delayMax = time.Second
	// steady is how long a connection must have stood for the next one to be made at once.
	steady = time.Second
)

// link is what candidates and observers share: a connection that is made anew when it has ended.
type link struct {
	mu      sync.Mutex
	changed change
	// conn is the connection, if there is one.
	conn *connection
	// isAccepted: the agent has told something at least once.
	isAccepted, isClosed bool
	// obstacle is why the agent tells nothing.
	obstacle error
	// failure is why there will be no connection any more.
	failure error
	cancel  context.CancelFunc
}

// open runs session on connections to the agent, one after the other, until the link is cancelled or
// the agent refuses for good. A session's conn is set, and closed after it.
func (l *link) open(socket string, session func(*connection) error) {
	ctx, cancel := context.WithCancel(context.Background())
	l.cancel = cancel
	go func() {
		failure := l.keep(ctx, socket, session)
		l.mu.Lock()
		defer l.mu.Unlock()
		l.obstacle, l.failure = failure, failure
		l.changed.tell()
	}()
}

func (l *link) keep(ctx context.Context, socket string, session func(*connection) error) error {
	pause := newDelays()
	for {
		path := socketPath(socket)
		conn, err := dial(ctx, path)
		if err == nil {
			// One that was with the user's agent does not go to the system's.
			socket = path
			began := time.Now()
			if l.set(conn) {
				err = session(conn)
			}
			conn.close()
			l.set(nil)
			if time.Since(began) >= steady {
				pause.next = 0
			}
		}
		if ctx.Err() != nil {
			return ErrClosed
		}
		if isFinal(err) {
			return err
		}
		l.mu.Lock()
		l.obstacle = err
		l.changed.tell()
		l.mu.Unlock()
		select {
		case <-ctx.Done():
			return ErrClosed
		case <-time.After(pause.take()):
		}
	}
}

// set sets the connection, unless the link was closed.
func (l *link) set(conn *connection) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conn = conn
	return !l.isClosed
}

// await waits until a condition holds, which it asks under the lock, or there is no hope for it.
func (l *link) await(ctx context.Context, holds func() bool) error {
	for {
		l.mu.Lock()
		changed, err := l.changed.wait(), error(nil)
		switch {
		case l.isClosed:
			err = ErrClosed
		case ctx.Err() != nil:
			err = withObstacle(ctx.Err(), l.obstacle)
		case holds():
			l.mu.Unlock()
			return nil
		default:
			err = l.failure
		}
		l.mu.Unlock()
		if err != nil {
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
}

// delays are the times between attempts to connect. They double, and those of many programs differ.
type delays struct {
	next   time.Duration
	random *rand.Rand
}

func newDelays() delays {
	// Before Go 1.20 the shared generator gives every process the same numbers.
	seed := time.Now().UnixNano() ^ int64(os.Getpid())<<32
	return delays{delayMin, rand.New(rand.NewSource(seed))}
}

func (d *delays) take() time.Duration {
	delay := d.next
	d.next = delay * 2
	if d.next < delayMin {
		d.next = delayMin
	}
	if d.next > delayMax {
		d.next = delayMax
	}
	return delay/2 + time.Duration(d.random.Int63n(int64(delay/2)+1))
}

// isFinal tells whether it is of no use to try again.
func isFinal(err error) bool {
	var refused *RefusedError
	var path *pathError
	return errors.As(err, &refused) && !refused.MayRetry() || errors.As(err, &path)
}

// change wakes all who wait for a change of something. Its methods are called with the lock of
// that thing.
type change struct{ next chan struct{} }

func (c *change) wait() <-chan struct{} {
	if c.next == nil {
		c.next = make(chan struct{})
	}
	return c.next
}

func (c *change) tell() {
	if c.next != nil {
		close(c.next)
		c.next = nil
	}
}
