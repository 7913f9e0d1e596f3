package primacy

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestAnObserverSeesTheLatest(t *testing.T) {
	t.Parallel()
	agent := newFakeAgent(t)
	observers := make(chan *Observer, 1)
	go func() {
		observer, err := Observe(testContext(t), "billing", At(agent.path))
		if err != nil {
			t.Error(err)
		}
		observers <- observer
	}()
	hold, request := agent.request()
	if !reflect.DeepEqual(request, fields{"type": "observe", "protocol": 1.0, "election": "billing"}) {
		t.Fatalf("the request is %v", request)
	}
	hold.tell(seen(fields{"election": "billing", "token": 41, "state": "vacant", "leader": nil}))
	observer := <-observers
	defer observer.Close()
	hold.tell(fields{"type": "weather"})
	hold.tell(seen(fields{
		"election": "billing", "token": 42, "state": "led", "paused": true,
		"leader": fields{"label": "web-1", "id": "5b", "data": "x", "more": 1},
	}))
	status, err := observer.Next(testContext(t))
	must(t, err)
	if status.Token != 42 || status.State != "led" || !status.Paused || status.Leader.Label != "web-1" ||
		!strings.Contains(string(status.Raw), `"more":1`) {
		t.Fatalf("it sees %+v", status)
	}

	// The next agent.
	_ = hold.stream.Close()
	next, _ := agent.request()
	next.tell(seen(fields{"election": "billing", "token": 9223372036854775807, "state": "unknown"}))
	status, err = observer.Next(testContext(t))
	must(t, err)
	if status.Token != 9223372036854775807 || status.Leader != nil {
		t.Fatalf("it sees %+v", status)
	}

	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := observer.Next(ctx); !errors.Is(err, context.Canceled) {
		t.Fatalf("the error is %v", err)
	}
	observer.Close()
	next.expectEnd()
	if _, err := observer.Next(testContext(t)); err != ErrClosed {
		t.Fatalf("the error is %v", err)
	}
}

func seen(status fields) fields { return fields{"type": "seen", "status": status} }

func TestAnObserverMayBeRefused(t *testing.T) {
	t.Parallel()
	agent := newFakeAgent(t)
	failures := make(chan error, 1)
	go func() {
		_, err := Observe(testContext(t), "billing", At(agent.path))
		failures <- err
	}()
	agent.refuse("busy")
	agent.refuse("no-such-election")
	var refused *RefusedError
	if err := <-failures; !errors.As(err, &refused) || refused.Code != "no-such-election" {
		t.Fatalf("the error is %v", err)
	}
}

type given struct {
	outcome Outcome
	err     error
}

// order gives an order in the background.
func order(give func(...Setting) (Outcome, error), settings ...Setting) <-chan given {
	results := make(chan given, 1)
	go func() {
		outcome, err := give(settings...)
		results <- given{outcome, err}
	}()
	return results
}

func TestOrdersAreGiven(t *testing.T) {
	t.Parallel()
	agent, ctx := newFakeAgent(t), testContext(t)
	for name, give := range map[string]func(...Setting) (Outcome, error){
		"promote": func(s ...Setting) (Outcome, error) { return Promote(ctx, "billing", "web-2", s...) },
		"depose":  func(s ...Setting) (Outcome, error) { return Depose(ctx, "billing", s...) },
		"pause":   func(s ...Setting) (Outcome, error) { return Pause(ctx, "billing", s...) },
		"resume":  func(s ...Setting) (Outcome, error) { return Resume(ctx, "billing", s...) },
	} {
		results := order(give, At(agent.path), IfToken(9223372036854775807))
		hold, request := agent.request()
		expected := fields{
			"type": "order", "protocol": 1.0, "election": "billing", "order": name,
			"token": "9223372036854775807",
		}
		if name == "promote" {
			expected["candidate"] = "web-2"
		}
		if !reflect.DeepEqual(request, expected) {
			t.Fatalf("the request is %v", request)
		}
		hold.send(fields{"type": "ordered", "outcome": fields{"order": name, "result": "written", "before": nil}})
		if got := <-results; got.err != nil || got.outcome.Order != name ||
			got.outcome.Result != "written" || !strings.Contains(string(got.outcome.Raw), "before") {
			t.Fatalf("the outcome is %+v", got)
		}
		hold.expectEnd()
	}
}

func TestAnOrderTellsWhetherItMayHaveBeenCarriedOut(t *testing.T) {
	t.Parallel()
	agent := newFakeAgent(t)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	depose := func(s ...Setting) (Outcome, error) { return Depose(ctx, "billing", s...) }

	results := order(depose, At(agent.path))
	agent.refuse("refused")
	var refused *RefusedError
	if got := <-results; !errors.As(got.err, &refused) || errors.Is(got.err, ErrOutcomeUnknown) {
		t.Fatalf("the error is %v", got.err)
	}

	results = order(depose, At(agent.path))
	agent.refuse("unavailable")
	if got := <-results; !errors.As(got.err, &refused) || !errors.Is(got.err, ErrOutcomeUnknown) {
		t.Fatalf("the error is %v", got.err)
	}

	for _, answer := range []string{"", "hello\n", `{"type":"holds"}` + "\n", `{"type":"ordered"}` + "\n"} {
		results = order(depose, At(agent.path))
		hold, request := agent.request()
		if _, has := request["token"]; has {
			t.Fatalf("the request is %v", request)
		}
		hold.raw(answer)
		_ = hold.stream.Close()
		if got := <-results; !errors.Is(got.err, ErrOutcomeUnknown) {
			t.Fatalf("after %q the error is %v", answer, got.err)
		}
	}

	results = order(depose, At(agent.path))
	agent.request()
	cancel()
	if got := <-results; !errors.Is(got.err, ErrOutcomeUnknown) || !errors.Is(got.err, context.Canceled) {
		t.Fatalf("the error is %v", got.err)
	}

	// It was not sent.
	for _, path := range []string{agent.path, agent.path + "x"} {
		if _, err := Depose(ctx, "billing", At(path)); err == nil || errors.Is(err, ErrOutcomeUnknown) {
			t.Fatalf("the error is %v", err)
		}
	}
}

func TestHoldsAreListed(t *testing.T) {
	t.Parallel()
	agent := newFakeAgent(t)
	answers := make(chan Agent, 1)
	go func() {
		answer, err := Holds(testContext(t), At(agent.path))
		if err != nil {
			t.Error(err)
		}
		answers <- answer
	}()
	hold, request := agent.request()
	if !reflect.DeepEqual(request, fields{"type": "list", "protocol": 1.0}) {
		t.Fatalf("the request is %v", request)
	}
	hold.send(fields{"type": "holds", "name": "web", "version": "0.1.0", "holds": []fields{
		{"election": "billing", "name": "web-1", "pid": 4711, "uid": 1000, "standing": "leads",
			"token": "42", "deadline_ns": 94000000000, "proof": "process"},
		{"election": "billing", "name": "web-2", "pid": 4712, "uid": 1000, "standing": "waits",
			"token": nil, "deadline_ns": nil, "proof": "none"},
	}})
	expected := Agent{"web", "0.1.0", []Hold{
		{"billing", "web-1", 4711, 1000, "leads", 42, 94 * time.Second, ProofProcess},
		{"billing", "web-2", 4712, 1000, "waits", 0, 0, ProofNone},
	}}
	if answer := <-answers; !reflect.DeepEqual(answer, expected) {
		t.Fatalf("the answer is %+v", answer)
	}
}

func TestWhereTheAgentListens(t *testing.T) {
	folder := socketFolder(t)
	t.Setenv("XDG_RUNTIME_DIR", folder)
	t.Setenv("PRIMACY_AGENT", "")
	own := filepath.Join(folder, "primacy", "agent.sock")
	expect := func(given, path string) {
		t.Helper()
		if found := socketPath(given); found != path {
			t.Fatalf("the path is %s, and not %s", found, path)
		}
	}
	expect("", "/run/primacy/agent.sock")
	must(t, os.Mkdir(filepath.Dir(own), 0o700))
	must(t, os.WriteFile(own, nil, 0o600))
	expect("", own)
	if !isOf(folder, os.Geteuid()) || isOf(folder, os.Geteuid()+1) || isOf(own+"/none", os.Geteuid()) {
		t.Fatal("whose the folder is")
	}
	for _, open := range []string{folder, filepath.Dir(own)} {
		for _, mode := range []os.FileMode{0o777 | os.ModeSticky, 0o770, 0o702} {
			must(t, os.Chmod(open, mode))
			expect("", "/run/primacy/agent.sock")
		}
		must(t, os.Chmod(open, 0o755))
		expect("", own)
	}
	t.Setenv("PRIMACY_AGENT", "/a")
	expect("", "/a")
	expect("/b", "/b")
}
