package primacy

import (
	"context"
	"encoding/json"
	"fmt"
	"time"
)

// Setting changes where or under which condition something is asked.
type Setting func(*settings)

type settings struct {
	socket string
	token  *token
}

func collect(all []Setting) settings {
	var collected settings
	for _, set := range all {
		set(&collected)
	}
	return collected
}

// At names the path of the agent's socket, as Options.Socket does.
func At(socket string) Setting { return func(s *settings) { s.socket = socket } }

// IfToken lets an order count only if this is still the last token that was granted.
func IfToken(last uint64) Setting {
	return func(s *settings) { given := token(last); s.token = &given }
}

// Outcome is what became of an order.
type Outcome struct {
	// Order is "promote", "depose", "pause" or "resume".
	Order string `json:"order"`
	// Result is "written", or "already" if nothing had to be changed.
	Result string `json:"result"`
	// Raw is all that the agent has sent, as JSON.
	Raw json.RawMessage `json:"-"`
}

// Promote makes a waiting candidate the leader, by its name or the 32 digits of its id. It returns
// when the order is written, not when the candidate leads.
//
// Errors of all orders: a *RefusedError; ErrOutcomeUnknown if the connection or ctx has ended after
// the order was sent, or the store has not answered the agent; any other if it was not sent. An
// order is not given twice.
func Promote(
	ctx context.Context, election, candidate string, settings ...Setting,
) (Outcome, error) {
	return give(ctx, request{Order: "promote", Election: election, Candidate: candidate}, settings)
}

// Depose makes the leader hand over to any other candidate.
func Depose(ctx context.Context, election string, settings ...Setting) (Outcome, error) {
	return give(ctx, request{Order: "depose", Election: election}, settings)
}

// Pause lets nobody lead who does not lead already.
func Pause(ctx context.Context, election string, settings ...Setting) (Outcome, error) {
	return give(ctx, request{Order: "pause", Election: election}, settings)
}

// Resume lets candidates lead again.
func Resume(ctx context.Context, election string, settings ...Setting) (Outcome, error) {
	return give(ctx, request{Order: "resume", Election: election}, settings)
}

// Agent is what an agent says about itself.
type Agent struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	// Holds are those of processes of this user. Root and the agent's user are shown all.
	Holds []Hold `json:"holds"`
}

// Hold is a candidate of the agent, for a process on its host.
type Hold struct {
	Election string
	Name     string
	PID      int
	UID      int
	// Standing is "waits", "leads", "draining", or "ends": the process is gone, and its leadership
	// lasts until the deadline.
	Standing string
	// Token is 0 while it waits.
	Token uint64
	// Deadline is a moment of CLOCK_BOOTTIME, as the time since the machine was started; 0 while it
	// waits.
	Deadline time.Duration
	Proof    Proof
}

// UnmarshalJSON reads a hold as the agent sends it.
func (h *Hold) UnmarshalJSON(text []byte) error {
	var read struct {
		Election   string `json:"election"`
		Name       string `json:"name"`
		PID        int    `json:"pid"`
		UID        int    `json:"uid"`
		Standing   string `json:"standing"`
		Token      token  `json:"token"`
		DeadlineNS int64  `json:"deadline_ns"`
		Proof      Proof  `json:"proof"`
	}
	if err := json.Unmarshal(text, &read); err != nil {
		return err
	}
	*h = Hold{
		read.Election, read.Name, read.PID, read.UID, read.Standing,
		uint64(read.Token), time.Duration(read.DeadlineNS), read.Proof,
	}
	return nil
}

// Holds asks the agent what it holds, and for whom.
func Holds(ctx context.Context, settings ...Setting) (Agent, error) {
	var agent Agent
	answer, _, err := ask(ctx, request{Type: "list"}, "holds", collect(settings).socket)
	if err == nil {
		err = answer.decode(&agent)
	}
	return agent, err
}

// give gives an order.
func give(ctx context.Context, order request, settings []Setting) (Outcome, error) {
	collected := collect(settings)
	order.Type, order.Token = "order", collected.token
	answer, isSent, err := ask(ctx, order, "ordered", collected.socket)
	var outcome Outcome
	if err == nil {
		var content struct {
			Outcome json.RawMessage `json:"outcome"`
		}
		if err = answer.decode(&content); err == nil {
			outcome.Raw = content.Outcome
			err = (&frame{text: content.Outcome}).decode(&outcome)
		}
	}
	refused, isRefused := err.(*RefusedError)
	if err != nil && isSent && (!isRefused || refused.Code == "unavailable") {
		err = &unknownOutcome{err}
	}
	return outcome, err
}

// ask sends a request on a connection of its own and awaits the answer of a type. It tells whether
// the agent may have got the request.
func ask(
	ctx context.Context, question request, expected, socket string,
) (answer *frame, isSent bool, err error) {
	question.Protocol = protocolVersion
	if err := question.check(); err != nil {
		return nil, false, err
	}
	conn, err := dial(ctx, socketPath(socket))
	if err != nil {
		return nil, false, err
	}
	defer conn.close()
	defer closeWith(ctx, conn)()
	if err := conn.greet(); err != nil {
		return nil, false, causeOf(ctx, err)
	}
	if err := conn.send(question); err != nil {
		return nil, true, causeOf(ctx, err)
	}
	for {
		answer, err := conn.receive()
		if err != nil {
			return nil, true, causeOf(ctx, err)
		}
		if answer.Type == expected {
			return answer, true, nil
		}
		if answer.isKnown() {
			return nil, true, fmt.Errorf("primacy: the agent answers with a frame %q", answer.Type)
		}
		if err := conn.answer(answer.N); err != nil {
			return nil, true, causeOf(ctx, err)
		}
	}
}

// causeOf is the error of the context if that has ended, because it has ended the connection then.
// A refusal stays one.
func causeOf(ctx context.Context, err error) error {
	if _, isRefused := err.(*RefusedError); !isRefused && ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// closeWith closes a connection when the context ends, until the function that it returns is called.
func closeWith(ctx context.Context, conn *connection) func() {
	done := make(chan struct{})
	go func() {
		select {
		case <-ctx.Done():
			conn.close()
		case <-done:
		}
	}()
	return func() { close(done) }
}
