package primacy

import (
	"context"
	"encoding/json"
	"errors"
)

// Status is how an election stands.
type Status struct {
	Election string `json:"election"`
	// State is "led", "vacant", "unknown", "never" or "forgotten".
	State string `json:"state"`
	// Leader is nil unless State is "led".
	Leader *struct {
		ID    string `json:"id"`
		Label string `json:"label"`
		Data  string `json:"data"`
	} `json:"leader"`
	// Token is the last one that was granted, also after its lease has ended.
	Token  uint64 `json:"token"`
	Paused bool   `json:"paused"`
	// Raw is all that the agent has sent: the JSON of primacy status.
	Raw json.RawMessage `json:"-"`
}

// Observer sees how an election stands, and takes no part. It outlives agents, as a candidate does.
// Its methods may be called from several goroutines.
type Observer struct {
	link
	request request
	// seen was not returned yet.
	seen *Status
}

// Observe looks at an election until the observer is closed. It returns when the agent has told how
// the election stands; while there is no agent, it goes on trying until ctx ends. The context bounds
// this call alone.
//
// Errors are those of Campaign.
func Observe(ctx context.Context, election string, settings ...Setting) (*Observer, error) {
	look := request{Type: "observe", Protocol: protocolVersion, Election: election}
	if err := look.check(); err != nil {
		return nil, err
	}
	o := &Observer{request: look}
	o.open(collect(settings).socket, o.session)
	if err := o.await(ctx, func() bool { return o.isAccepted }); err != nil {
		o.Close()
		return nil, err
	}
	return o, nil
}

// Next awaits a status that it has not returned yet, and returns the latest. The first is there at
// once. After a loss of the connection the next one may be the same again.
//
// Errors: the error of ctx; ErrClosed; a *RefusedError if the agent refuses the observer for good.
func (o *Observer) Next(ctx context.Context) (Status, error) {
	var status Status
	err := o.await(ctx, func() bool {
		if o.seen == nil {
			return false
		}
		status, o.seen = *o.seen, nil
		return true
	})
	return status, err
}

// Close ends the observer. Next fails with ErrClosed then, also where it waits.
func (o *Observer) Close() {
	o.mu.Lock()
	o.isClosed = true
	conn := o.conn
	o.changed.tell()
	o.mu.Unlock()
	o.cancel()
	if conn != nil {
		conn.close()
	}
}

// session reads and answers until the connection ends.
func (o *Observer) session(conn *connection) error {
	if err := conn.greet(); err != nil {
		return err
	}
	if err := conn.send(o.request); err != nil {
		return err
	}
	for {
		received, err := conn.receive()
		if err != nil {
			return err
		}
		if received.Type == "seen" {
			if err := o.note(received); err != nil {
				return err
			}
		}
		if err := conn.answer(received.N); err != nil {
			return err
		}
	}
}

func (o *Observer) note(received *frame) error {
	var content struct {
		Status json.RawMessage `json:"status"`
	}
	if err := received.decode(&content); err != nil {
		return err
	}
	if received.N == nil || content.Status == nil {
		return errors.New("primacy: the agent leaves out a field of a frame \"seen\"")
	}
	status := Status{Raw: content.Status}
	if err := (&frame{text: content.Status}).decode(&status); err != nil {
		return err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.isAccepted, o.obstacle, o.seen = true, nil, &status
	o.changed.tell()
	return nil
}
