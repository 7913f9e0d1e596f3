// Package primacy holds leaderships through the agent on the same host, the command primacy agent.
//
// Of all candidates of an election, on all hosts, at most one leads at a time. A leadership has a
// fencing token, which is larger than all before it, and ends at a deadline unless the agent
// extends it. This package reads and answers what the agent sends in goroutines of its own,
// whatever the program does meanwhile.
//
// IsCurrent says that nobody else leads now. What is under way while a process is paused only a
// fence can refuse: send the token with every write, and let the resource refuse smaller ones.
package primacy

import (
	"context"
	"fmt"
)

// Proof is how the agent may know that nothing works for a program any more, if the program ends
// without saying so. It decides how soon another candidate can lead then.
type Proof string

const (
	// ProofNone declares nothing: the leadership lasts until its deadline.
	ProofNone Proof = "none"
	// ProofProcess declares that this process is the only one that works for it. A program that
	// starts workers which act as the leader must not declare it.
	ProofProcess Proof = "process"
	// ProofCgroup declares that all that works for it is in the control group of this process,
	// and below it.
	ProofCgroup Proof = "cgroup"
)

// Options are what a candidate may say about itself. The zero value is good.
type Options struct {
	// Name is what people call this candidate. Empty: the agent's name.
	Name string
	// Data is what it publishes while it leads, such as its address: up to 1,024 bytes of UTF-8.
	Data string
	// Proof is how the agent may know that the program has ended. Empty: ProofNone.
	Proof Proof
	// Socket is the path of the agent's socket. Empty: $PRIMACY_AGENT; without that,
	// $XDG_RUNTIME_DIR/primacy/agent.sock if that exists, and no other user may write to either
	// folder; else /run/primacy/agent.sock.
	Socket string
	// OnLost is called once for each leadership that was lost, when the channel Lost is closed, in
	// a goroutine of its own. It is not called for one that was closed before.
	OnLost func(*Leadership)

	// clock is CLOCK_BOOTTIME in nanoseconds; tests have one that they set.
	clock func() (int64, error)
}

// Candidate is a program's wish to lead an election. It outlives leaderships and agents: when the
// agent has gone, it connects to the next one. Its methods may be called from several goroutines.
type Candidate struct {
	link
	request request
	options Options
	// standing is what the agent has told last.
	standing Standing
	// kept has begun and was not handed out yet; the work of held has not stopped.
	kept, held *Leadership
}

// Standing is how a candidate stands, as the agent told it last.
type Standing struct {
	// IsConnected tells whether the agent knows this candidate now. If not, only Why is set.
	IsConnected bool
	// Position in the waiting order counts from 1. It is 0 when it is not known, and while it leads.
	Position uint64
	// Leader is who leads, if that is known and somebody else.
	Leader *Leader
	// Why is a sentence for people.
	Why string
}

// Leader is another candidate that leads.
type Leader struct {
	Name  string
	Token uint64
}

// Campaign becomes a candidate of an election. It returns when the agent has accepted it; while
// there is no agent, or the agent is busy, it goes on trying until ctx ends. The context bounds
// this call alone. The candidate lasts until it is closed.
//
// Errors: a *RefusedError with its code; the error of ctx, with what stood in the way; what cannot be
// sent.
func Campaign(ctx context.Context, election string, options Options) (*Candidate, error) {
	if options.clock == nil {
		options.clock = bootClock
	}
	if _, err := options.clock(); err != nil {
		return nil, fmt.Errorf("primacy: %w", err)
	}
	hold := request{
		Type: "hold", Protocol: protocolVersion, Election: election,
		Name: options.Name, Data: options.Data, Proof: options.Proof,
	}
	if err := hold.check(); err != nil {
		return nil, err
	}
	c := &Candidate{request: hold, options: options}
	c.open(options.Socket, c.session)
	if err := c.await(ctx, func() bool { return c.isAccepted }); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// Elected waits until this candidate leads, and hands the leadership out. It waits also for the
// one before to be closed: its work must have stopped. A leadership that begins while nobody waits
// is kept for the next call, and given back if it ends before.
//
// Errors: the error of ctx; ErrClosed; a *RefusedError if the agent refuses the candidate for good. A
// leadership that was handed out before lasts on.
func (c *Candidate) Elected(ctx context.Context) (*Leadership, error) {
	var elected *Leadership
	err := c.await(ctx, func() bool {
		if c.kept == nil || c.held != nil {
			return false
		}
		if dropped := c.kept.checkLocked(); dropped != nil {
			go dropped()
			return false
		}
		elected, c.held, c.kept = c.kept, c.kept, nil
		return true
	})
	return elected, err
}

// Standing is how it stands.
func (c *Candidate) Standing() Standing {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.obstacle != nil {
		return Standing{Why: c.obstacle.Error()}
	}
	return c.standing
}

// Close withdraws the candidate. A leadership that is still open is lost, with the reason "closed":
// its work is to stop, and Close of the leadership gives it back. Without that it lasts until its
// deadline.
func (c *Candidate) Close() {
	c.mu.Lock()
	c.isClosed = true
	dropped := c.dropLocked()
	conn := c.conn
	if c.held != nil {
		c.held.loseLocked("closed", "the program has closed its candidate")
		if c.held.conn == conn {
			// It ends when the work has stopped, or at the deadline.
			conn = nil
		}
	}
	c.changed.tell()
	c.mu.Unlock()
	c.cancel()
	dropped()
	if conn != nil {
		conn.close()
	}
}

// session is one hold: it reads and answers until the connection ends.
func (c *Candidate) session(conn *connection) error {
	defer c.disconnected()
	if err := conn.greet(); err != nil {
		return err
	}
	hold := c.request
	now, err := c.options.clock()
	if err != nil {
		return err
	}
	hold.NowNS = now
	if err := conn.send(hold); err != nil {
		return err
	}
	for {
		received, err := conn.receive()
		if err != nil {
			return err
		}
		if err := c.handle(conn, received); err != nil {
			return err
		}
	}
}

// disconnected leaves a leadership that was handed out to last until its deadline. For one that was
// not, nobody works.
func (c *Candidate) disconnected() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dropLocked()
}

// news is a frame that tells a candidate how it stands.
type news struct {
	Position *uint64 `json:"position"`
	Leader   *struct {
		Name  string `json:"name"`
		Token token  `json:"token"`
	} `json:"leader"`
	Token      *token `json:"token"`
	StopNS     *int64 `json:"stop_ns"`
	DeadlineNS *int64 `json:"deadline_ns"`
	ByNS       *int64 `json:"by_ns"`
	Reason     string `json:"reason"`
	Why        string `json:"why"`
}

// readNews is the content of a frame, or nil if its type is not known.
func readNews(f *frame) (*news, error) {
	var isSpan, isDraining, isLost bool
	switch f.Type {
	case "waiting":
	case "elected", "extended":
		isSpan = true
	case "draining":
		isDraining = true
	case "lost":
		isLost = true
	default:
		return nil, nil
	}
	var n news
	if err := f.decode(&n); err != nil {
		return nil, err
	}
	if f.N == nil ||
		(isSpan || isDraining || isLost) && n.Token == nil ||
		isSpan && (n.StopNS == nil || n.DeadlineNS == nil) ||
		isDraining && n.ByNS == nil {
		return nil, fmt.Errorf("primacy: the agent leaves out a field of a frame %q", f.Type)
	}
	return &n, nil
}

// handle takes note of a frame first and answers it then: the agent reckons with what was answered.
func (c *Candidate) handle(conn *connection, f *frame) error {
	n, err := readNews(f)
	if err != nil {
		return err
	}
	dropped := nothing
	if n != nil {
		dropped = c.note(conn, f.Type, n)
	}
	err = conn.answer(f.N)
	dropped()
	return err
}

// note takes note of news. What it returns is to be done after they were answered.
func (c *Candidate) note(conn *connection, kind string, n *news) func() {
	c.mu.Lock()
	defer c.mu.Unlock()
	defer c.changed.tell()
	dropped := nothing
	c.isAccepted, c.obstacle = true, nil
	c.standing = Standing{IsConnected: true, Why: n.Why}
	if kind == "waiting" {
		if n.Position != nil {
			c.standing.Position = *n.Position
		}
		if n.Leader != nil {
			c.standing.Leader = &Leader{n.Leader.Name, uint64(n.Leader.Token)}
		}
		return dropped
	}
	if kind == "elected" {
		dropped = c.dropLocked()
		if c.held != nil {
			c.held.replacedLocked()
		}
		if c.isClosed {
			return func() { dropped(); _ = conn.send(stoppedFrame{"stopped", *n.Token}) }
		}
		c.kept = newLeadershipLocked(c, conn, n)
		return dropped
	}
	l := c.findLocked(conn, uint64(*n.Token))
	if l == nil {
		return dropped
	}
	switch kind {
	case "extended":
		l.extendedLocked(*n.StopNS, *n.DeadlineNS)
	case "draining":
		l.drainingLocked(*n.ByNS, n.Reason, n.Why)
	case "lost":
		l.lostLocked(n.Reason, n.Why)
	}
	if l == c.kept && l.isLost {
		dropped = c.dropLocked()
	}
	return dropped
}

func (c *Candidate) findLocked(conn *connection, token uint64) *Leadership {
	for _, l := range []*Leadership{c.held, c.kept} {
		if l != nil && l.conn == conn && l.token == token {
			return l
		}
	}
	return nil
}

// dropLocked drops a leadership that was not handed out. What it returns tells the agent, and is to
// be called without the lock.
func (c *Candidate) dropLocked() func() {
	l := c.kept
	if l == nil {
		return nothing
	}
	c.kept = nil
	l.endLocked()
	return l.tellStopped
}

func nothing() {}
