package primacy

import (
	"context"
	"sync/atomic"
	"testing"
	"time"
)

func TestALeadershipLastsUntilItsDeadline(t *testing.T) {
	t.Parallel()
	_, hold, _, leadership := lead(t, Options{}, long, long)
	deadline := bootNow(t) + int64(time.Second)
	hold.tell(fields{
		"type": "extended", "token": "7", "stop_ns": deadline, "deadline_ns": deadline,
	})
	for {
		before := bootNow(t)
		isCurrent, remaining := leadership.IsCurrent(), leadership.Remaining()
		after := bootNow(t)
		if isCurrent && before >= deadline {
			t.Fatalf("it is current %d ns after its deadline", before-deadline)
		}
		if !isCurrent && after < deadline {
			t.Fatalf("it is not current %d ns before its deadline", deadline-after)
		}
		if remaining > 0 && remaining > time.Duration(deadline-before) {
			t.Fatalf("%v remain", remaining)
		}
		if !isCurrent {
			break
		}
	}
	awaitLoss(t, leadership, "silent")
}

func TestOfSeveralExtensionsTheLastCounts(t *testing.T) {
	t.Parallel()
	_, hold, _, leadership := lead(t, Options{}, 5*time.Second, 5*time.Second)
	hold.tellSpan("extended", 7, 10*time.Minute, 20*time.Minute)
	hold.tellSpan("extended", 7, 30*time.Minute, 40*time.Minute)
	hold.tellSpan("extended", 6, long, 2*long)
	if left := leadership.Remaining(); left > 40*time.Minute || left < 39*time.Minute {
		t.Fatalf("%v remain", left)
	}
	if isLost(leadership) {
		t.Fatal("it is lost")
	}
}

func TestLostEndsALeadershipAtOnce(t *testing.T) {
	t.Parallel()
	_, hold, _, leadership := lead(t, Options{}, long, long)
	expectCurrent(t, leadership, true)
	hold.tellLost(6)
	expectCurrent(t, leadership, true)
	hold.tellLost(7)
	expectCurrent(t, leadership, false)
	awaitLoss(t, leadership, "expired")
	if leadership.Grace() != 0 {
		t.Fatal("there is a grace")
	}
	hold.tellSpan("extended", 7, long, long)
	expectCurrent(t, leadership, false)
	leadership.Close()
	hold.expectStopped(7)
}

func TestDrainingLeavesTimeToStop(t *testing.T) {
	t.Parallel()
	_, hold, _, leadership := lead(t, Options{}, long, 2*long)
	if grace := leadership.Grace(); grace <= long {
		t.Fatalf("the grace is %v", grace)
	}
	hold.tellDraining(7, time.Minute)
	awaitLoss(t, leadership, "deposed")
	expectCurrent(t, leadership, true)
	if grace := leadership.Grace(); grace > time.Minute || grace < time.Minute-patience {
		t.Fatalf("the grace is %v", grace)
	}
	hold.tellLost(7)
	expectCurrent(t, leadership, false)
}

func TestALossIsToldOnce(t *testing.T) {
	t.Parallel()
	var calls atomic.Int32
	told := make(chan struct{}, 10)
	_, hold, _, leadership := lead(t, Options{OnLost: func(l *Leadership) {
		if l.Token() != 7 || l.Reason() != "silent" {
			t.Errorf("the callback is told of %d, %s", l.Token(), l.Reason())
		}
		calls.Add(1)
		told <- struct{}{}
	}}, long, long)
	hold.tellSpan("extended", 7, 300*time.Millisecond, long)
	awaitLoss(t, leadership, "silent")
	await(t, told)
	expectCurrent(t, leadership, true)
	hold.tellDraining(7, long)
	hold.tellLost(7)
	leadership.Close()
	hold.expectStopped(7)
	if leadership.Reason() != "silent" || calls.Load() != 1 {
		t.Fatalf("it is told %d times, at last %s", calls.Load(), leadership.Reason())
	}
}

func TestALossWithoutWordIsNotTakenBack(t *testing.T) {
	t.Parallel()
	agent, hold, _, leadership := lead(t, Options{}, 2*time.Second, 4*time.Second)
	awaitLoss(t, leadership, "silent")
	hold.tellSpan("extended", 7, long, long)
	if left := leadership.Remaining(); left > 4*time.Second {
		t.Fatalf("%v remain", left)
	}
	// The work does not stop. The agent must not keep the lease for it.
	hold.expectEnd()
	expectCurrent(t, leadership, false)
	agent.request()
}

func TestALeadershipOutlivesItsConnection(t *testing.T) {
	t.Parallel()
	agent, hold, candidate, leadership := lead(t, Options{}, 2*time.Second, long)
	_ = hold.stream.Close()
	next, request := agent.request()
	if request["type"] != "hold" {
		t.Fatalf("the request is %v", request)
	}
	expectCurrent(t, leadership, true)
	if isLost(leadership) {
		t.Fatal("it is lost with the connection")
	}
	// Another hold says nothing about this leadership.
	next.tellSpan("extended", 7, long, long)
	awaitLoss(t, leadership, "silent")
	expectCurrent(t, leadership, true)
	leadership.Close()
	expectCurrent(t, leadership, false)
	next.tellSpan("elected", 8, long, long)
	if token := elected(t, candidate).Token(); token != 8 {
		t.Fatalf("the token is %d", token)
	}
}

func TestALargerTokenEndsTheLeadershipBefore(t *testing.T) {
	t.Parallel()
	agent, hold, _, leadership := lead(t, Options{}, long, long)
	_ = hold.stream.Close()
	next, _ := agent.request()
	next.tellSpan("elected", 8, long, long)
	awaitLoss(t, leadership, "lost")
	expectCurrent(t, leadership, false)
}

func TestCloseSaysOnceThatTheWorkHasStopped(t *testing.T) {
	t.Parallel()
	_, hold, candidate, leadership := lead(t, Options{OnLost: func(*Leadership) {
		t.Error("nothing was lost")
	}}, long, long)
	ctx := leadership.Context(context.Background())
	leadership.Close()
	leadership.Close()
	expectCurrent(t, leadership, false)
	awaitLoss(t, leadership, "resigned")
	await(t, ctx.Done())
	hold.expectStopped(7)
	hold.tellSpan("elected", 8, long, long)
	elected(t, candidate).Close()
	hold.expectStopped(8)
}

func TestTheContextEndsWithTheLeadershipOrItsParent(t *testing.T) {
	t.Parallel()
	_, hold, _, leadership := lead(t, Options{}, long, long)
	parent, cancel := context.WithCancel(context.Background())
	child, other := leadership.Context(parent), leadership.Context(context.Background())
	cancel()
	await(t, child.Done())
	if other.Err() != nil || isLost(leadership) {
		t.Fatal("the other one ended with it")
	}
	hold.tellDraining(7, long)
	await(t, other.Done())
	if leadership.Context(context.Background()).Err() == nil {
		t.Fatal("it begins after the loss")
	}
}

// The timers of a machine that was suspended are late, by the time for which it was.
func TestASuspendedMachineDoesNotLead(t *testing.T) {
	t.Parallel()
	var suspended atomic.Int64
	_, _, _, leadership := lead(t, Options{clock: func() (int64, error) {
		now, err := bootClock()
		return now + suspended.Load(), err
	}}, long, 2*long)
	expectCurrent(t, leadership, true)
	suspended.Store(int64(3 * long))
	expectCurrent(t, leadership, false)
	awaitLoss(t, leadership, "silent")
}

func TestAnExtensionThatIsReadTooLateIsNone(t *testing.T) {
	t.Parallel()
	var suspended atomic.Int64
	_, hold, _, leadership := lead(t, Options{clock: func() (int64, error) {
		now, err := bootClock()
		return now + suspended.Load(), err
	}}, long, 2*long)
	suspended.Store(int64(3 * long))
	hold.tellSpan("extended", 7, 5*long, 6*long)
	expectCurrent(t, leadership, false)
	awaitLoss(t, leadership, "silent")
}

func TestNoLeadershipIsHandedOutAfterItsStop(t *testing.T) {
	t.Parallel()
	var suspended atomic.Int64
	_, hold, candidate := begin(t, Options{clock: func() (int64, error) {
		now, err := bootClock()
		return now + suspended.Load(), err
	}})
	hold.tellSpan("elected", 7, long, 3*long)
	suspended.Store(int64(2 * long))
	hold.tellSpan("elected", 8, 3*long, 3*long)
	hold.expectStopped(7)
	if token := elected(t, candidate).Token(); token != 8 {
		t.Fatalf("the token is %d", token)
	}
}
