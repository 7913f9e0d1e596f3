package primacy

import (
	"bufio"
	"context"
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"testing"
	"time"
)

// patience is how long a test waits for what must happen. It is no part of what is tested.
const patience = 20 * time.Second

type fields map[string]interface{}

// fakeAgent is an agent that does what the test says.
type fakeAgent struct {
	t        *testing.T
	listener *net.UnixListener
	path     string
}

// fakeHold is the agent's end of one connection.
type fakeHold struct {
	t      *testing.T
	stream net.Conn
	lines  *bufio.Reader
	n      int
}

func newFakeAgent(t *testing.T) *fakeAgent {
	t.Helper()
	agent := &fakeAgent{t: t, path: filepath.Join(socketFolder(t), "agent.sock")}
	agent.start()
	t.Cleanup(agent.stop)
	return agent
}

// socketFolder is a folder with a path that is short enough for sockets.
func socketFolder(t *testing.T) string {
	t.Helper()
	folder, err := os.MkdirTemp("", "primacy")
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	return folder
}

func (a *fakeAgent) start() {
	a.t.Helper()
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: a.path, Net: "unix"})
	must(a.t, err)
	a.listener = listener
}

func (a *fakeAgent) stop() { _ = a.listener.Close() }

// connected awaits a connection and says nothing on it.
func (a *fakeAgent) connected() *fakeHold {
	a.t.Helper()
	must(a.t, a.listener.SetDeadline(time.Now().Add(patience)))
	stream, err := a.listener.Accept()
	must(a.t, err)
	must(a.t, stream.SetDeadline(time.Now().Add(patience)))
	a.t.Cleanup(func() { _ = stream.Close() })
	return &fakeHold{t: a.t, stream: stream, lines: bufio.NewReader(stream)}
}

// request awaits a connection, and the request on it.
func (a *fakeAgent) request() (*fakeHold, fields) {
	a.t.Helper()
	hold := a.connected()
	hold.send(fields{"type": "agent", "protocol": 1, "now_ns": bootNow(a.t)})
	return hold, hold.read()
}

// refuse awaits a request and refuses it.
func (a *fakeAgent) refuse(code string) {
	a.t.Helper()
	hold, _ := a.request()
	hold.send(fields{"type": "refused", "code": code, "why": "because of " + code})
	_ = hold.stream.Close()
}

func (h *fakeHold) send(frame fields) {
	h.t.Helper()
	line, err := json.Marshal(frame)
	must(h.t, err)
	h.raw(string(line) + "\n")
}

func (h *fakeHold) raw(text string) {
	h.t.Helper()
	_, err := h.stream.Write([]byte(text))
	must(h.t, err)
}

func (h *fakeHold) read() fields {
	h.t.Helper()
	line, err := h.lines.ReadString('\n')
	must(h.t, err)
	var frame fields
	must(h.t, json.Unmarshal([]byte(line), &frame))
	return frame
}

// expect awaits exactly this frame.
func (h *fakeHold) expect(frame fields) {
	h.t.Helper()
	if read := h.read(); !reflect.DeepEqual(read, frame) {
		h.t.Fatalf("expected %v, read %v", frame, read)
	}
}

// tell sends a frame with the next number, and awaits that it is answered.
func (h *fakeHold) tell(frame fields) {
	h.t.Helper()
	h.n++
	frame["n"] = h.n
	h.send(frame)
	h.expect(fields{"type": "read", "n": float64(h.n)})
}

func (h *fakeHold) tellWaiting() {
	h.t.Helper()
	h.tell(fields{"type": "waiting", "position": nil, "leader": nil, "why": "because"})
}

// tellSpan tells of a leadership that stops and ends so long from now.
func (h *fakeHold) tellSpan(kind string, token uint64, stop, deadline time.Duration) {
	h.t.Helper()
	h.tell(span(h.t, kind, token, stop, deadline))
}

func span(t *testing.T, kind string, token uint64, stop, deadline time.Duration) fields {
	t.Helper()
	now := bootNow(t)
	return fields{
		"type": kind, "token": strconv.FormatUint(token, 10),
		"stop_ns": now + int64(stop), "deadline_ns": now + int64(deadline),
	}
}

func (h *fakeHold) tellDraining(token uint64, by time.Duration) {
	h.t.Helper()
	h.tell(fields{
		"type": "draining", "token": strconv.FormatUint(token, 10),
		"reason": "deposed", "why": "an operator", "by_ns": bootNow(h.t) + int64(by),
	})
}

func (h *fakeHold) tellLost(token uint64) {
	h.t.Helper()
	h.tell(fields{
		"type": "lost", "token": strconv.FormatUint(token, 10),
		"reason": "expired", "why": "no renewal",
	})
}

func (h *fakeHold) expectStopped(token uint64) {
	h.t.Helper()
	h.expect(fields{"type": "stopped", "token": strconv.FormatUint(token, 10)})
}

// expectEnd awaits the end of the connection, and that nothing comes before it.
func (h *fakeHold) expectEnd() {
	h.t.Helper()
	line, err := h.lines.ReadString('\n')
	if err == nil {
		h.t.Fatalf("expected the end, read %s", line)
	}
	if timeout, ok := err.(net.Error); ok && timeout.Timeout() {
		h.t.Fatal("the connection does not end")
	}
}

// begin is a candidate that waits on a fake agent.
func begin(t *testing.T, options Options) (*fakeAgent, *fakeHold, *Candidate) {
	t.Helper()
	agent := newFakeAgent(t)
	options.Socket = agent.path
	result := campaign(t, options)
	hold, _ := agent.request()
	hold.tellWaiting()
	return agent, hold, result()
}

// campaign campaigns in the background, and returns what awaits the candidate.
func campaign(t *testing.T, options Options) func() *Candidate {
	t.Helper()
	candidates, failures := make(chan *Candidate, 1), make(chan error, 1)
	go func() {
		candidate, err := Campaign(testContext(t), "billing", options)
		if err != nil {
			failures <- err
			return
		}
		t.Cleanup(candidate.Close)
		candidates <- candidate
	}()
	return func() *Candidate {
		t.Helper()
		select {
		case candidate := <-candidates:
			return candidate
		case err := <-failures:
			t.Fatal(err)
			return nil
		}
	}
}

// lead is a candidate that has been handed out its leadership.
func lead(
	t *testing.T, options Options, stop, deadline time.Duration,
) (*fakeAgent, *fakeHold, *Candidate, *Leadership) {
	t.Helper()
	agent, hold, candidate := begin(t, options)
	hold.tellSpan("elected", 7, stop, deadline)
	return agent, hold, candidate, elected(t, candidate)
}

func elected(t *testing.T, candidate *Candidate) *Leadership {
	t.Helper()
	leadership, err := candidate.Elected(testContext(t))
	must(t, err)
	return leadership
}

func testContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

func awaitLoss(t *testing.T, leadership *Leadership, reason string) {
	t.Helper()
	await(t, leadership.Lost())
	if leadership.Reason() != reason || leadership.Why() == "" {
		t.Fatalf("lost because of %q: %s", leadership.Reason(), leadership.Why())
	}
}

func await(t *testing.T, event <-chan struct{}) {
	t.Helper()
	select {
	case <-event:
	case <-time.After(patience):
		t.Fatal("what was awaited has not happened")
	}
}

func isLost(leadership *Leadership) bool {
	select {
	case <-leadership.Lost():
		return true
	default:
		return false
	}
}

func bootNow(t *testing.T) int64 {
	t.Helper()
	now, err := bootClock()
	must(t, err)
	return now
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func expectCurrent(t *testing.T, leadership *Leadership, expected bool) {
	t.Helper()
	if leadership.IsCurrent() != expected {
		t.Fatalf("IsCurrent() is %v", !expected)
	}
	if (leadership.Remaining() > 0) != expected {
		t.Fatalf("Remaining() is %v", leadership.Remaining())
	}
}
