//go:build linux

package primacy

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sort"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// These tests run programs and real agents. PRIMACY is the path of the binary primacy.

const testElection = "billing"

// programVariable has the name of the program that this process is to be, instead of tests.
const programVariable = "PRIMACY_TEST_PROGRAM"

func TestMain(m *testing.M) {
	if name := os.Getenv(programVariable); name != "" {
		program(name)
	}
	os.Exit(m.Run())
}

// program leads whenever it can, and writes down what it sees, until its standard input ends.
//
// It is "current TOKEN BEFORE AFTER" when IsCurrent was true between these points of the boot clock,
// "elected TOKEN", "lost TOKEN REASON", "stopped TOKEN". If PRIMACY_TEST_STUBBORN is set, it works on
// after a loss for as long as it may.
func program(name string) {
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	isStubborn := os.Getenv("PRIMACY_TEST_STUBBORN") != ""
	ctx := context.Background()
	candidate, err := Campaign(ctx, testElection, Options{Name: name, Data: "of " + name, Proof: ProofProcess})
	for err == nil {
		var leadership *Leadership
		if leadership, err = candidate.Elected(ctx); err != nil {
			break
		}
		fmt.Println("elected", leadership.Token())
		for ended := leadership.Lost(); ; {
			before, _ := bootClock()
			isCurrent := leadership.IsCurrent()
			after, _ := bootClock()
			if isCurrent {
				fmt.Println("current", leadership.Token(), before, after)
			} else if ended == nil {
				break
			}
			select {
			case <-ended:
				fmt.Println("lost", leadership.Token(), leadership.Reason())
				ended = nil
			case <-time.After(2 * time.Millisecond):
			}
			if ended == nil && !isStubborn {
				break
			}
		}
		fmt.Println("stopped", leadership.Token())
		leadership.Close()
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// site is some hosts, each with an agent, and their programs. They share a store.
type site struct {
	t         *testing.T
	binary    string
	folder    string
	lease     string
	processes []*process
}

// process is a process of a site.
type process struct {
	t    *testing.T
	name string
	cmd  *exec.Cmd

	mu      sync.Mutex
	changed change
	lines   []string
	isDone  bool

	// elections are those that the test has seen.
	elections int
}

func newSite(t *testing.T, lease string) *site {
	t.Helper()
	binary := os.Getenv("PRIMACY")
	if binary == "" {
		if os.Getenv("CI") != "" {
			t.Fatal("PRIMACY must be the path of the binary primacy")
		}
		t.Skip("PRIMACY is not the path of the binary primacy")
	}
	t.Parallel()
	return &site{t: t, binary: binary, folder: socketFolder(t), lease: lease}
}

func (s *site) socket(host string) string { return filepath.Join(s.folder, host+".sock") }

func (s *site) command(arguments ...string) *exec.Cmd {
	cmd := exec.Command(s.binary, arguments...)
	cmd.Env = append(os.Environ(), "PRIMACY_STORE=sqlite:"+filepath.Join(s.folder, "store.db"))
	return cmd
}

func (s *site) run(arguments ...string) []byte {
	s.t.Helper()
	output, err := s.command(arguments...).Output()
	if err != nil {
		s.t.Fatalf("%v: %v", arguments, err)
	}
	return output
}

func (s *site) agent(host string) *process {
	s.t.Helper()
	return s.start("agent "+host,
		s.command("agent", "--socket", s.socket(host), "--name", host, "--lease", s.lease))
}

func (s *site) program(name, host string, more ...string) *process {
	s.t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), append(more, programVariable+"="+name, "PRIMACY_AGENT="+s.socket(host))...)
	return s.start(name, cmd)
}

// start starts a process that ends with this one.
func (s *site) start(name string, cmd *exec.Cmd) *process {
	s.t.Helper()
	p := &process{t: s.t, name: name, cmd: cmd}
	output, err := cmd.StdoutPipe()
	must(s.t, err)
	_, err = cmd.StdinPipe()
	must(s.t, err)
	var errors strings.Builder
	cmd.Stderr = &errors
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started := make(chan error)
	starts <- func() { started <- cmd.Start() }
	must(s.t, <-started)
	read := make(chan struct{})
	go func() {
		defer close(read)
		p.follow(output)
	}()
	s.processes = append(s.processes, p)
	s.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-read
		_ = cmd.Wait()
		if s.t.Failed() {
			s.t.Logf("%s:\n%s%s", p.name, strings.Join(p.told("elected", "lost", "stopped"), "\n"), errors.String())
		}
	})
	return p
}

// starts are carried out by one thread, since Pdeathsig is about the death of the thread.
var starts = func() chan<- func() {
	calls := make(chan func())
	go func() {
		runtime.LockOSThread()
		for call := range calls {
			call()
		}
	}()
	return calls
}()

func (p *process) follow(output io.Reader) {
	reader := bufio.NewReader(output)
	for {
		line, err := reader.ReadString('\n')
		p.mu.Lock()
		if err != nil {
			p.isDone = true
		} else {
			p.lines = append(p.lines, strings.TrimSpace(line))
		}
		p.changed.tell()
		p.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// told are the lines so far that begin with one of the words.
func (p *process) told(words ...string) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.toldLocked(words...)
}

func (p *process) toldLocked(words ...string) []string {
	var found []string
	for _, line := range p.lines {
		for _, word := range words {
			if strings.HasPrefix(line, word+" ") {
				found = append(found, line)
			}
		}
	}
	return found
}

// await awaits more lines with a word than there were, and returns the last.
func (p *process) await(word string, were int) string {
	p.t.Helper()
	limit := time.After(patience)
	for {
		p.mu.Lock()
		found, changed, isDone := p.toldLocked(word), p.changed.wait(), p.isDone
		p.mu.Unlock()
		if len(found) > were {
			return found[len(found)-1]
		}
		if isDone {
			p.t.Fatalf("%s has ended", p.name)
		}
		select {
		case <-changed:
		case <-limit:
			p.t.Fatalf("%s does not tell %q", p.name, word)
		}
	}
}

// leads awaits that a program is elected once more than when this was called last, and works.
func (p *process) leads() {
	p.t.Helper()
	elected := p.await("elected", p.elections)
	p.elections = len(p.told("elected"))
	p.await("current "+strings.Fields(elected)[1], 0)
}

func (p *process) signal(signal syscall.Signal) {
	p.t.Helper()
	must(p.t, p.cmd.Process.Signal(signal))
}

// freeze stops a process, and returns when it stands still. One that stood still in a transaction of
// SQLite would keep all others from the store, and nobody could lead. It goes on a little then.
func (p *process) freeze() {
	p.t.Helper()
	for until := time.Now().Add(patience); time.Now().Before(until); {
		p.signal(syscall.SIGSTOP)
		for !p.isFrozen() && time.Now().Before(until) {
			time.Sleep(time.Millisecond)
		}
		if !p.hasWriteLock() {
			return
		}
		p.signal(syscall.SIGCONT)
		time.Sleep(5 * time.Millisecond)
	}
	p.t.Fatalf("%s does not stand still without a lock", p.name)
}

// isFrozen tells whether all of its threads stand still.
func (p *process) isFrozen() bool {
	p.t.Helper()
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", p.cmd.Process.Pid))
	must(p.t, err)
	for _, thread := range threads {
		text, err := os.ReadFile(thread)
		// The state is after the name, which is in parentheses.
		if err != nil || !strings.HasPrefix(string(text[strings.LastIndex(string(text), ")")+1:]), " T") {
			return false
		}
	}
	return len(threads) > 0
}

// hasWriteLock tells whether it has a lock of SQLite that excludes others. The agent's own lock of its
// socket is of another kind.
func (p *process) hasWriteLock() bool {
	p.t.Helper()
	locks, err := os.ReadFile("/proc/locks")
	must(p.t, err)
	for _, line := range strings.Split(string(locks), "\n") {
		// As "1: POSIX  ADVISORY  WRITE 4711 fe:01:1234 120 120".
		words := strings.Fields(line)
		if len(words) > 4 && words[1] == "POSIX" && words[3] == "WRITE" && words[4] == strconv.Itoa(p.cmd.Process.Pid) {
			return true
		}
	}
	return false
}

// ended awaits the end of a process.
func (p *process) ended() {
	p.t.Helper()
	limit := time.After(patience)
	for {
		p.mu.Lock()
		changed, isDone := p.changed.wait(), p.isDone
		p.mu.Unlock()
		if isDone {
			return
		}
		select {
		case <-changed:
		case <-limit:
			p.t.Fatalf("%s does not end", p.name)
		}
	}
}

// leadTime is a time in which a program certainly believed that it leads.
type leadTime struct {
	token      uint64
	name       string
	start, end int64
}

// expectNeverTwo looks at all that the programs have told: their times do not overlap, and later
// ones have larger tokens. At least this many have led.
func (s *site) expectNeverTwo(least int) {
	s.t.Helper()
	times := map[uint64]*leadTime{}
	for _, p := range s.processes {
		for _, line := range p.told("current") {
			words := strings.Fields(line)
			if len(words) != 4 {
				continue // it was killed in the middle
			}
			token, _ := strconv.ParseUint(words[1], 10, 64)
			before, _ := strconv.ParseInt(words[2], 10, 64)
			after, _ := strconv.ParseInt(words[3], 10, 64)
			led := times[token]
			if led == nil {
				led = &leadTime{token, p.name, after, after}
				times[token] = led
			}
			if led.name != p.name {
				s.t.Fatalf("%s and %s have led with token %d", led.name, p.name, token)
			}
			if before > led.end {
				led.end = before
			}
		}
	}
	var sorted []*leadTime
	for _, led := range times {
		sorted = append(sorted, led)
	}
	sort.Slice(sorted, func(i, j int) bool { return sorted[i].token < sorted[j].token })
	for i := 1; i < len(sorted); i++ {
		if sorted[i].start <= sorted[i-1].end {
			s.t.Errorf("two have led at once: %+v, %+v", *sorted[i-1], *sorted[i])
		}
	}
	if len(sorted) < least {
		s.t.Errorf("only %d have led", len(sorted))
	}
}

func TestAgentAProgramIsKilled(t *testing.T) {
	// The leadership would last for a minute.
	s := newSite(t, "60s")
	s.agent("a")
	s.agent("b")
	first := s.program("first", "a")
	first.leads()
	second := s.program("second", "b")
	first.signal(syscall.SIGKILL)
	second.leads()
	s.expectNeverTwo(2)
}

func TestAgentAnAgentIsKilled(t *testing.T) {
	s := newSite(t, "4s")
	agent := s.agent("a")
	s.agent("b")
	first := s.program("first", "a", "PRIMACY_TEST_STUBBORN=1")
	first.leads()
	second := s.program("second", "b")
	losses := len(first.told("lost"))
	agent.signal(syscall.SIGKILL)
	first.await("lost", losses)
	second.leads()

	s.agent("a")
	second.signal(syscall.SIGKILL)
	first.leads()
	s.expectNeverTwo(3)
}

func TestAgentAnAgentIsFrozen(t *testing.T) {
	s := newSite(t, "4s")
	agent := s.agent("a")
	s.agent("b")
	first := s.program("first", "a", "PRIMACY_TEST_STUBBORN=1")
	first.leads()
	second := s.program("second", "b")
	losses := len(first.told("lost"))
	agent.freeze()
	first.await("lost", losses)
	second.leads()

	agent.signal(syscall.SIGCONT)
	second.signal(syscall.SIGKILL)
	first.leads()
	s.expectNeverTwo(3)
}

func TestAgentAProgramIsFrozen(t *testing.T) {
	s := newSite(t, "4s")
	s.agent("a")
	s.agent("b")
	first := s.program("first", "a", "PRIMACY_TEST_STUBBORN=1")
	first.leads()
	second := s.program("second", "b")
	losses := len(first.told("lost"))
	first.freeze()
	second.leads()

	first.signal(syscall.SIGCONT)
	first.await("lost", losses)
	second.signal(syscall.SIGKILL)
	first.leads()
	s.expectNeverTwo(3)
}

func TestAgentAnAgentIsAskedToEnd(t *testing.T) {
	s := newSite(t, "60s")
	agent := s.agent("a")
	s.agent("b")
	first := s.program("first", "a")
	first.leads()
	second := s.program("second", "b")
	agent.signal(syscall.SIGTERM)
	first.await("stopped", 0)
	agent.ended()
	second.leads()

	s.agent("a")
	second.signal(syscall.SIGKILL)
	first.leads()
	s.expectNeverTwo(3)
}

func TestAgentOrdersAndLooks(t *testing.T) {
	s := newSite(t, "60s")
	s.agent("a")
	s.agent("b")
	ctx, at := testContext(t), At(s.socket("a"))
	first := s.program("first", "a")
	first.leads()

	observer, err := Observe(ctx, testElection, at)
	must(t, err)
	defer observer.Close()
	status := awaitStatus(t, observer, func(status Status) bool { return status.State == "led" })
	if status.Leader.Label != "first" || status.Leader.Data != "of first" || status.Token == 0 {
		t.Fatalf("the status is %s", status.Raw)
	}
	var refused *RefusedError
	if _, err := Promote(ctx, testElection, "nobody", at); !errors.As(err, &refused) || refused.Code != "refused" {
		t.Fatalf("the error is %v", err)
	}
	agent, err := Holds(ctx, at)
	must(t, err)
	if agent.Name != "a" || len(agent.Holds) != 1 {
		t.Fatalf("the agent holds %+v", agent)
	}
	if hold := agent.Holds[0]; hold.PID != first.cmd.Process.Pid || hold.Standing != "leads" ||
		hold.Token != status.Token || hold.Proof != ProofProcess || int64(hold.Deadline) < bootNow(t) {
		t.Fatalf("the agent holds %+v", hold)
	}

	second := s.program("second", "b")
	awaitStatus(t, observer, func(status Status) bool {
		return strings.Contains(string(status.Raw), `"label":"second"`)
	})
	if _, err := Depose(ctx, testElection, at, IfToken(status.Token+1)); !errors.As(err, &refused) {
		t.Fatalf("the error is %v", err)
	}
	s.run("depose", "--election", testElection)
	if line := first.await("lost", 0); line != fmt.Sprintf("lost %d deposed", status.Token) {
		t.Fatalf("it tells %s", line)
	}
	second.leads()

	status = awaitStatus(t, observer, func(status Status) bool {
		return status.Leader != nil && status.Leader.Label == "second" &&
			strings.Contains(string(status.Raw), `"label":"first"`)
	})
	outcome, err := Promote(ctx, testElection, "first", at, IfToken(status.Token))
	must(t, err)
	if outcome.Order != "promote" || outcome.Result != "written" {
		t.Fatalf("the outcome is %s", outcome.Raw)
	}
	first.leads()
	second.await("stopped", 0)

	_, err = Pause(ctx, testElection, at)
	must(t, err)
	awaitStatus(t, observer, func(status Status) bool { return status.Paused })
	_, err = Resume(ctx, testElection, at)
	must(t, err)
	awaitStatus(t, observer, func(status Status) bool { return !status.Paused })

	var printed struct {
		Token uint64 `json:"token"`
	}
	must(t, json.Unmarshal(s.run("status", "--json", "--election", testElection), &printed))
	if last := first.await("elected", 1); last != fmt.Sprintf("elected %d", printed.Token) {
		t.Fatalf("the store has token %d, and the program tells %s", printed.Token, last)
	}
	s.expectNeverTwo(3)
}

func awaitStatus(t *testing.T, observer *Observer, holds func(Status) bool) Status {
	t.Helper()
	for {
		status, err := observer.Next(testContext(t))
		must(t, err)
		if holds(status) {
			return status
		}
	}
}

func TestAgentRefusals(t *testing.T) {
	s := newSite(t, "60s")
	s.agent("a")
	behind := func() (int64, error) {
		now, err := bootClock()
		return now - int64(time.Second), err
	}
	for _, refusal := range []struct {
		election, code string
		options        Options
	}{
		{"", "malformed", Options{}},
		{testElection, "malformed", Options{Proof: "oath"}},
		{testElection, "malformed", Options{Data: strings.Repeat("x", 1025)}},
		{testElection, "clock", Options{clock: behind}},
	} {
		refusal.options.Socket = s.socket("a")
		_, err := Campaign(testContext(t), refusal.election, refusal.options)
		var refused *RefusedError
		if !errors.As(err, &refused) || refused.Code != refusal.code || refused.Why == "" {
			t.Errorf("not %s, but %v", refusal.code, err)
		}
	}
}
