package primacy

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

const long = time.Hour

func TestTheRequestSaysWhatTheOptionsSay(t *testing.T) {
	t.Parallel()
	agent := newFakeAgent(t)
	campaign(t, Options{Name: "web-1", Data: "<10.0.0.1>", Proof: ProofProcess, Socket: agent.path})
	hold := agent.connected()
	before := bootNow(t)
	hold.send(fields{"type": "agent", "protocol": 1, "now_ns": before, "more": []int{1}})
	request := hold.read()
	now := int64(request["now_ns"].(float64))
	// A float64 may be off by a microsecond after years.
	if now < before-1000 || now > bootNow(t)+1000 {
		t.Fatalf("now_ns is %d, and not after %d", now, before)
	}
	delete(request, "now_ns")
	expected := fields{
		"type": "hold", "protocol": 1.0, "election": "billing",
		"name": "web-1", "data": "<10.0.0.1>", "proof": "process",
	}
	for name, value := range expected {
		if request[name] != value {
			t.Errorf("%s is %v", name, request[name])
		}
	}
	if len(request) != len(expected) {
		t.Errorf("the request is %v", request)
	}
}

func TestTheRequestLeavesOutWhatIsNotSaid(t *testing.T) {
	t.Parallel()
	agent := newFakeAgent(t)
	campaign(t, Options{Socket: agent.path})
	_, request := agent.request()
	if len(request) != 4 {
		t.Fatalf("the request is %v", request)
	}
}

func TestWhatCannotBeSentIsAnErrorBeforeAnyConnection(t *testing.T) {
	t.Parallel()
	for _, options := range []Options{
		{Data: strings.Repeat("x", requestMax)}, {Name: "\xff"},
		{Socket: "/" + strings.Repeat("x", pathMax)},
	} {
		if _, err := Campaign(testContext(t), "billing", options); err == nil ||
			errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("the error is %v", err)
		}
	}
}

func TestACandidateTellsHowItStands(t *testing.T) {
	t.Parallel()
	_, hold, candidate := begin(t, Options{})
	hold.tell(fields{
		"type": "waiting", "position": 2, "why": "web-2 leads",
		"leader": fields{"name": "web-2", "token": "41", "more": 1},
	})
	standing := candidate.Standing()
	if !standing.IsConnected || standing.Position != 2 || standing.Why != "web-2 leads" ||
		*standing.Leader != (Leader{"web-2", 41}) {
		t.Fatalf("it stands at %+v", standing)
	}
	hold.tellWaiting()
	if standing := candidate.Standing(); standing.Position != 0 || standing.Leader != nil {
		t.Fatalf("it stands at %+v", standing)
	}
}

func TestFramesThatItDoesNotKnowAreAnswered(t *testing.T) {
	t.Parallel()
	_, hold, candidate := begin(t, Options{})
	hold.send(fields{"type": "weather"})
	hold.tell(fields{"type": "weather", "token": 5, "reason": fields{}, "position": "high"})
	hold.tellSpan("elected", 7, long, long)
	expectCurrent(t, elected(t, candidate), true)
}

func TestFramesComeInPiecesAndTogether(t *testing.T) {
	t.Parallel()
	_, hold, candidate := begin(t, Options{})
	hold.raw(`{"type": "wai`)
	hold.raw("ting\", \"n\": 8}\n")
	hold.expect(fields{"type": "read", "n": 8.0})
	hold.raw("{\"type\":\"waiting\",\"n\":9}\n  {\"type\":\"elected\",\"n\":10,\"token\":\"9223372036854775807\"," +
		"\"stop_ns\":9223372036854775807,\"deadline_ns\":9223372036854775807}\r\n{\"type\":\"waiting\",\"n\":11}\n")
	for n := 9.0; n < 12; n++ {
		hold.expect(fields{"type": "read", "n": n})
	}
	if token := elected(t, candidate).Token(); token != math.MaxInt64 {
		t.Fatalf("the token is %d", token)
	}
}

func TestFramesAreAnsweredWhateverTheProgramDoes(t *testing.T) {
	t.Parallel()
	blocked, end := make(chan struct{}), make(chan struct{})
	defer close(end)
	_, hold, _, leadership := lead(t, Options{OnLost: func(*Leadership) {
		close(blocked)
		<-end
	}}, long, long)
	hold.tellDraining(7, long)
	await(t, blocked)
	hold.tellLost(7)
	leadership.Close()
	hold.expectStopped(7)
	hold.tellSpan("elected", 8, long, long)
}

func TestMalformedFramesEndTheConnection(t *testing.T) {
	t.Parallel()
	exact := `{"type":"waiting","n":2,"why":"` + strings.Repeat("x", answerMax)
	exact = exact[:answerMax-2] + `"}`
	for name, text := range map[string]string{
		"no JSON":         "hello\n",
		"a list":          "[]\n",
		"null":            "null\n",
		"an empty line":   "\n",
		"no type":         `{"n":2}` + "\n",
		"a wrong number":  `{"type":"waiting","n":-2}` + "\n",
		"no number":       `{"type":"lost","token":"7"}` + "\n",
		"a numeric token": `{"type":"elected","n":2,"token":7,"stop_ns":1,"deadline_ns":1}` + "\n",
		"a wrong token":   `{"type":"elected","n":2,"token":"7x","stop_ns":1,"deadline_ns":1}` + "\n",
		"no deadline":     `{"type":"elected","n":2,"token":"7","stop_ns":1}` + "\n",
		"no UTF-8":        "{\"type\":\"waiting\",\"n\":2,\"why\":\"\xff\"}\n",
		"a long one":      exact[:answerMax-2] + `x"}` + "\n",
		"one without end": strings.Repeat("x", answerMax+pieceBytes),
	} {
		text := text
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			agent, hold, candidate := begin(t, Options{})
			hold.raw(exact + "\n")
			hold.expect(fields{"type": "read", "n": 2.0})
			hold.raw(text)
			hold.expectEnd()
			next, _ := agent.request()
			next.tellSpan("elected", 8, long, long)
			elected(t, candidate)
		})
	}
}

func TestRefusalsForGoodAreErrors(t *testing.T) {
	t.Parallel()
	for _, code := range []string{
		"malformed", "protocol", "clock", "not-allowed", "no-such-election", "proof", "news",
	} {
		agent := newFakeAgent(t)
		failures := make(chan error, 1)
		go func() {
			_, err := Campaign(testContext(t), "billing", Options{Socket: agent.path})
			failures <- err
		}()
		agent.refuse(code)
		var refused *RefusedError
		if err := <-failures; !errors.As(err, &refused) || refused.Code != code ||
			refused.Why != "because of "+code {
			t.Fatalf("the error is %v", err)
		}
	}
}

func TestARefusalLaterIsAnErrorOfElected(t *testing.T) {
	t.Parallel()
	agent, hold, candidate := begin(t, Options{})
	_ = hold.stream.Close()
	agent.refuse("not-allowed")
	var refused *RefusedError
	if _, err := candidate.Elected(testContext(t)); !errors.As(err, &refused) {
		t.Fatalf("the error is %v", err)
	}
}

func TestItTriesAgainWhenThatIsOfUse(t *testing.T) {
	t.Parallel()
	agent := newFakeAgent(t)
	result := campaign(t, Options{Socket: agent.path})
	// Too many connections: before the agent's first frame.
	hold := agent.connected()
	hold.send(fields{"type": "refused", "code": "busy", "why": "full"})
	_ = hold.stream.Close()
	agent.refuse("ending")
	agent.refuse("unavailable")
	hold, _ = agent.request()
	hold.tellWaiting()
	result()
	hold.send(fields{"type": "refused", "code": "ending", "why": "an update"})
	agent.request()
}

func TestItWaitsForAnAgent(t *testing.T) {
	t.Parallel()
	agent := newFakeAgent(t)
	agent.stop()
	ctx, cancel := context.WithTimeout(context.Background(), 1500*time.Millisecond)
	defer cancel()
	_, err := Campaign(ctx, "billing", Options{Socket: agent.path})
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), agent.path) {
		t.Fatalf("the error is %v", err)
	}
	result := campaign(t, Options{Socket: agent.path})
	agent.start()
	hold, _ := agent.request()
	hold.tellWaiting()
	result()
}

func TestAnAgentThatDoesNotSpeakIsLeft(t *testing.T) {
	t.Parallel()
	agent := newFakeAgent(t)
	campaign(t, Options{Socket: agent.path})
	silent := agent.connected()
	silent.expectEnd()
	agent.request()
}

func TestDelaysDouble(t *testing.T) {
	t.Parallel()
	pause := newDelays()
	for _, most := range []time.Duration{50, 100, 200, 400, 800, 1000, 1000} {
		most *= time.Millisecond
		if delay := pause.take(); delay < most/2 || delay > most {
			t.Fatalf("the delay is %v and not up to %v", delay, most)
		}
	}
	pause.next = 0
	if delay := pause.take(); delay != 0 {
		t.Fatalf("the delay after a connection is %v", delay)
	}
}

func TestElectedEndsWithItsContext(t *testing.T) {
	t.Parallel()
	_, hold, candidate := begin(t, Options{})
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := candidate.Elected(ctx); !errors.Is(err, context.Canceled) {
		t.Fatalf("the error is %v", err)
	}
	// The candidate waits on.
	hold.tellSpan("elected", 7, long, long)
	elected(t, candidate)
}

func TestTheNextLeadershipComesAfterTheOneBeforeWasClosed(t *testing.T) {
	t.Parallel()
	_, hold, candidate, first := lead(t, Options{}, long, long)
	hold.tellLost(7)
	hold.tellSpan("elected", 8, long, long)
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if _, err := candidate.Elected(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("the error is %v", err)
	}
	first.Close()
	hold.expectStopped(7)
	if token := elected(t, candidate).Token(); token != 8 {
		t.Fatalf("the token is %d", token)
	}
}

func TestALeadershipThatNobodyAwaitsIsKept(t *testing.T) {
	t.Parallel()
	_, hold, candidate := begin(t, Options{})
	hold.tellSpan("elected", 7, 5*time.Second, long)
	hold.tellSpan("extended", 7, long, long)
	expectCurrent(t, elected(t, candidate), true)
}

func TestALeadershipThatEndedBeforeAnybodyAwaitedItIsGivenBack(t *testing.T) {
	t.Parallel()
	_, hold, candidate := begin(t, Options{OnLost: func(*Leadership) {
		t.Error("the program never had it")
	}})
	hold.tellSpan("elected", 7, long, long)
	hold.tellDraining(7, long)
	hold.expectStopped(7)
	hold.tellSpan("elected", 8, long, long)
	hold.tellLost(8)
	hold.expectStopped(8)
	hold.tellSpan("elected", 9, time.Second, long)
	hold.expectStopped(9)
	hold.tellSpan("elected", 10, long, long)
	leadership := elected(t, candidate)
	if leadership.Token() != 10 {
		t.Fatalf("the token is %d", leadership.Token())
	}
	leadership.Close()
}

func TestALeadershipOfAnEndedConnectionIsNotHandedOut(t *testing.T) {
	t.Parallel()
	agent, hold, candidate := begin(t, Options{})
	hold.tellSpan("elected", 7, long, long)
	_ = hold.stream.Close()
	next, _ := agent.request()
	next.tellSpan("elected", 8, long, long)
	if token := elected(t, candidate).Token(); token != 8 {
		t.Fatalf("the token is %d", token)
	}
}

func TestCloseEndsTheConnection(t *testing.T) {
	t.Parallel()
	_, hold, candidate := begin(t, Options{})
	waiting := make(chan error, 1)
	go func() {
		_, err := candidate.Elected(context.Background())
		waiting <- err
	}()
	candidate.Close()
	candidate.Close()
	hold.expectEnd()
	if err := <-waiting; err != ErrClosed {
		t.Fatalf("the error is %v", err)
	}
	if _, err := candidate.Elected(testContext(t)); err != ErrClosed {
		t.Fatalf("the error is %v", err)
	}
}

func TestCloseGivesBackWhatNobodyWasHanded(t *testing.T) {
	t.Parallel()
	_, hold, candidate := begin(t, Options{})
	hold.tellSpan("elected", 7, long, long)
	candidate.Close()
	hold.expectStopped(7)
	hold.expectEnd()
}

func TestCloseOfACandidateTellsItsLeadership(t *testing.T) {
	t.Parallel()
	told := make(chan struct{})
	_, hold, candidate, leadership := lead(t, Options{OnLost: func(*Leadership) { close(told) }}, long, long)
	candidate.Close()
	awaitLoss(t, leadership, "closed")
	await(t, told)
	expectCurrent(t, leadership, true)
	leadership.Close()
	expectCurrent(t, leadership, false)
	hold.expectStopped(7)
	hold.expectEnd()
}

func TestAClosedCandidateWhoseWorkDoesNotStopEndsAtItsDeadline(t *testing.T) {
	t.Parallel()
	_, hold, candidate, leadership := lead(t, Options{}, long, 2*time.Second)
	candidate.Close()
	hold.tellSpan("extended", 7, long, long)
	hold.expectEnd()
	expectCurrent(t, leadership, false)
}

func TestTheConnectionIsClosedInProgramsThatThisOneStarts(t *testing.T) {
	agent, _, _ := begin(t, Options{})
	found := false
	entries, err := os.ReadDir("/proc/self/fd")
	must(t, err)
	for _, entry := range entries {
		target, err := os.Readlink(filepath.Join("/proc/self/fd", entry.Name()))
		if err != nil || !strings.HasPrefix(target, "socket:") {
			continue
		}
		found = true
		info, err := os.ReadFile(filepath.Join("/proc/self/fdinfo", entry.Name()))
		must(t, err)
		for _, line := range strings.Split(string(info), "\n") {
			if strings.HasPrefix(line, "flags:") && !isCloseOnExec(line) {
				t.Errorf("socket %s has %s", entry.Name(), line)
			}
		}
	}
	if !found {
		t.Fatalf("there is no socket to %s", agent.path)
	}
}

func isCloseOnExec(line string) bool {
	flags, err := strconv.ParseUint(strings.TrimSpace(strings.TrimPrefix(line, "flags:")), 8, 64)
	return err == nil && flags&syscall.O_CLOEXEC != 0
}
