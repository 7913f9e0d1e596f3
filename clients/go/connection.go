package primacy

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"
	"unicode/utf8"
)

const (
	protocolVersion = 1
	// requestMax and answerMax are the lengths of the longest frames of programs and agents, in bytes.
	requestMax = 16 << 10
	answerMax  = 4 << 20
	// pieceBytes is how much of a frame is read at a time.
	pieceBytes = 4 << 10
	// pathMax is the length of the longest path of a socket on Linux, in bytes.
	pathMax = 107
	// greetingTimeout is how long the agent may take for its first frame.
	greetingTimeout = 5 * time.Second
	// sendTimeout is how long the agent may leave no room for a frame of some bytes.
	sendTimeout = time.Second
)

// connection sends and receives frames. Whole frames may be sent from several goroutines.
type connection struct {
	stream  net.Conn
	reader  *bufio.Reader
	sending sync.Mutex
}

// frame is what is common to all frames, and its text.
type frame struct {
	Type string  `json:"type"`
	N    *uint64 `json:"n"`
	text []byte
}

// token is a fencing token as frames have it: a string of decimal digits.
type token uint64

func (t token) MarshalJSON() ([]byte, error) {
	return []byte(`"` + strconv.FormatUint(uint64(t), 10) + `"`), nil
}

// UnmarshalJSON leaves the token as it is for null, which stands for none.
func (t *token) UnmarshalJSON(text []byte) error {
	if string(text) == "null" {
		return nil
	}
	var digits string
	if err := json.Unmarshal(text, &digits); err != nil {
		return err
	}
	value, err := strconv.ParseUint(digits, 10, 64)
	*t = token(value)
	return err
}

// socketPath is where the agent listens: given, else by the environment, else the user's, else the
// system's.
func socketPath(given string) string {
	if given != "" {
		return given
	}
	if path := os.Getenv("PRIMACY_AGENT"); path != "" {
		return path
	}
	if folder := os.Getenv("XDG_RUNTIME_DIR"); folder != "" && isOf(folder, os.Geteuid()) {
		path := filepath.Join(folder, "primacy", "agent.sock")
		if _, err := os.Stat(path); err == nil && isOf(filepath.Dir(path), os.Geteuid()) {
			return path
		}
	}
	return "/run/primacy/agent.sock"
}

// isOf says whether a folder is this user's, and no other may write to it. In another user's, as
// after sudo -E, or in one for all, as /tmp, anybody could be the agent.
func isOf(folder string, user int) bool {
	info, err := os.Stat(folder)
	if err != nil {
		return false
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(stat.Uid) == user && info.Mode().Perm()&0o022 == 0
}

// dial connects to the agent. The socket is closed in programs that this one starts: package net
// opens it close-on-exec.
func dial(ctx context.Context, path string) (*connection, error) {
	if len(path) > pathMax {
		return nil, &pathError{path}
	}
	var dialer net.Dialer
	stream, err := dialer.DialContext(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("primacy: no agent: %w", err)
	}
	return &connection{stream: stream, reader: bufio.NewReaderSize(stream, pieceBytes)}, nil
}

// pathError says that a path can never be that of a socket.
type pathError struct{ path string }

func (e *pathError) Error() string {
	return fmt.Sprintf("primacy: the path of the agent's socket has more than %d bytes: %s", pathMax, e.path)
}

// greet awaits the agent's first frame.
func (c *connection) greet() error {
	if err := c.stream.SetReadDeadline(time.Now().Add(greetingTimeout)); err != nil {
		return err
	}
	for {
		greeting, err := c.receive()
		if _, isRefused := err.(*RefusedError); isRefused {
			return err
		}
		if err != nil {
			return fmt.Errorf("primacy: the agent does not speak: %w", err)
		}
		if greeting.Type == "agent" {
			return c.stream.SetReadDeadline(time.Time{})
		}
		if greeting.isKnown() {
			return fmt.Errorf("primacy: the agent begins with a frame %q", greeting.Type)
		}
	}
}

// receive awaits a frame. One that refuses is an error, a *RefusedError.
func (c *connection) receive() (*frame, error) {
	line, err := c.line()
	if err != nil {
		return nil, err
	}
	if !utf8.Valid(line) {
		return nil, errors.New("primacy: the agent sends a frame that is not UTF-8")
	}
	received := frame{text: line}
	if err := received.decode(&received); err != nil {
		return nil, err
	}
	if received.Type == "" {
		return nil, errors.New("primacy: the agent sends a frame without a type")
	}
	if received.Type == "refused" {
		refused := RefusedError{}
		if err := received.decode(&refused); err != nil {
			return nil, err
		}
		return nil, &refused
	}
	return &received, nil
}

// line awaits the end of a line.
func (c *connection) line() ([]byte, error) {
	var line []byte
	for {
		piece, err := c.reader.ReadSlice('\n')
		line = append(line, piece...)
		switch {
		case len(line) > answerMax+1 || len(line) > answerMax && err != nil:
			return nil, fmt.Errorf("primacy: the agent sends a frame of more than %d bytes", answerMax)
		case err == nil:
			return line, nil
		case errors.Is(err, io.EOF):
			return nil, errors.New("primacy: the agent has ended the connection")
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, fmt.Errorf("primacy: the connection has ended: %w", err)
		}
	}
}

// isKnown tells whether this program knows the type of the frame.
func (f *frame) isKnown() bool {
	switch f.Type {
	case "agent", "waiting", "elected", "extended", "draining", "lost", "seen", "ordered", "holds":
		return true
	}
	return false
}

// decode reads the fields of the frame into a struct.
func (f *frame) decode(into interface{}) error {
	if err := json.Unmarshal(f.text, into); err != nil {
		return fmt.Errorf("primacy: the agent sends a malformed frame: %w", err)
	}
	return nil
}

// send sends a frame. When it fails, the connection has ended.
func (c *connection) send(content interface{}) error {
	line, err := encode(content)
	if err != nil {
		return err
	}
	c.sending.Lock()
	defer c.sending.Unlock()
	if err = c.stream.SetWriteDeadline(time.Now().Add(sendTimeout)); err == nil {
		_, err = c.stream.Write(line)
	}
	if err != nil {
		c.close()
	}
	return err
}

// answer says that a frame was read, if it has a number.
func (c *connection) answer(n *uint64) error {
	if n == nil {
		return nil
	}
	return c.send(readFrame{"read", *n})
}

func (c *connection) close() { _ = c.stream.Close() }

// encode is the text of a frame. One that is too long is an error: the agent would refuse it.
func encode(content interface{}) ([]byte, error) {
	line, err := json.Marshal(content)
	if err != nil {
		return nil, err
	}
	if len(line)+1 > requestMax {
		return nil, fmt.Errorf("primacy: the request has more than %d bytes", requestMax)
	}
	return append(line, '\n'), nil
}

// What programs send.

type readFrame struct {
	Type string `json:"type"`
	N    uint64 `json:"n"`
}

type stoppedFrame struct {
	Type  string `json:"type"`
	Token token  `json:"token"`
}

type request struct {
	Type      string `json:"type"`
	Protocol  int    `json:"protocol"`
	Election  string `json:"election,omitempty"`
	NowNS     int64  `json:"now_ns,omitempty"`
	Name      string `json:"name,omitempty"`
	Data      string `json:"data,omitempty"`
	Proof     Proof  `json:"proof,omitempty"`
	Order     string `json:"order,omitempty"`
	Candidate string `json:"candidate,omitempty"`
	Token     *token `json:"token,omitempty"`
}

// check finds what the agent could not read, before any connection.
func (r request) check() error {
	for _, text := range []string{r.Election, r.Name, r.Data, r.Candidate} {
		if !utf8.ValidString(text) {
			return fmt.Errorf("primacy: %q is not UTF-8", text)
		}
	}
	r.NowNS = math.MaxInt64 // the longest
	_, err := encode(r)
	return err
}
