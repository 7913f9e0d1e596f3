package primacy

import (
	"errors"
	"fmt"
)

// ErrClosed is the error of a call on a candidate or an observer that was closed.
var ErrClosed = errors.New("primacy: closed")

// ErrOutcomeUnknown is the error of an order that was sent and not answered. It may have been
// carried out. Giving it again with IfToken cannot depose a leader that came after it.
var ErrOutcomeUnknown = errors.New("primacy: the order may have been carried out")

// RefusedError is an answer of the agent: it does not do what it was asked for.
type RefusedError struct {
	// Code is one of the words in the table of the agent's protocol, such as "not-allowed".
	Code string `json:"code"`
	// Why is a sentence for people.
	Why string `json:"why"`
}

func (r *RefusedError) Error() string {
	return fmt.Sprintf("primacy: the agent refuses (%s): %s", r.Code, r.Why)
}

// MayRetry tells whether the same request may succeed later without anybody's doing. Candidates
// and observers try again by themselves then.
func (r *RefusedError) MayRetry() bool {
	return r.Code == "busy" || r.Code == "ending" || r.Code == "unavailable"
}

// obstacleError is the end of a context, and what stood in the way until then.
type obstacleError struct{ ended, obstacle error }

func (e *obstacleError) Error() string { return fmt.Sprintf("%v: %v", e.obstacle, e.ended) }
func (e *obstacleError) Unwrap() error { return e.ended }

// withObstacle adds to the end of a context what stood in the way, if anything is known of it.
func withObstacle(ended, obstacle error) error {
	if obstacle == nil {
		return ended
	}
	return &obstacleError{ended, obstacle}
}

// unknownOutcome is ErrOutcomeUnknown with its cause.
type unknownOutcome struct{ cause error }

func (e *unknownOutcome) Error() string        { return fmt.Sprintf("%v: %v", ErrOutcomeUnknown, e.cause) }
func (e *unknownOutcome) Unwrap() error        { return e.cause }
func (e *unknownOutcome) Is(target error) bool { return target == ErrOutcomeUnknown }
