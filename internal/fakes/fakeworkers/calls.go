package fakeworkers

import (
	"fmt"
	"testing"
	"time"

	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/models"
)

// Submit hands a call to the backend, or frees its memory if it is refused.
func Submit(t *testing.T, b query.Host, service int, timeout time.Duration) (*query.Call, error) {
	t.Helper()
	c := query.NewCall(b.Services()[service])
	c.Size, c.Arrival, c.Timeout = 1, time.Now(), timeout
	if !c.Service.Hold() {
		return nil, query.ErrUnavailable
	}
	m, err := c.Service.Backend.Alloc(c.Service, 64)
	if err != nil {
		c.Service.LetGo()
		return nil, err
	}
	c.Memory = m
	c.Inputs = []models.Tensor{{Type: models.Int32, Shape: []int64{1, 16}, Data: m.Bytes, Offset: m.Offset, Bytes: int64(len(m.Bytes))}}
	if err := c.Service.Backend.Submit(c); err != nil {
		c.Service.Backend.Free(c.Service, m)
		c.Service.LetGo()
		return nil, err
	}
	return c, nil
}

// MustSubmit hands in a call that is not refused.
func MustSubmit(t *testing.T, b query.Host, service int) *query.Call {
	t.Helper()
	c, err := Submit(t, b, service, 0)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// AnswerOf waits for the one answer of a call, checks whose it is and takes
// the call's memory back.
func AnswerOf(t *testing.T, b query.Host, c *query.Call) *query.Error {
	t.Helper()
	select {
	case <-c.Answered():
	case <-time.After(10 * time.Second):
		t.Fatal("a call is not answered")
	}
	err := c.Reply.Err
	if want := fmt.Sprint(c.QueryID); err == nil && (len(c.Reply.Outputs) != 1 || string(c.Reply.Outputs[0].Data) != want) {
		t.Errorf("call %s got the outputs %v", want, c.Reply.Outputs)
	}
	c.Service.Backend.Release(c)
	c.Service.LetGo()
	return err
}

// Served fails the test unless calls are answered, each with its outputs.
func Served(t *testing.T, b query.Host, calls ...*query.Call) {
	t.Helper()
	for _, c := range calls {
		if err := AnswerOf(t, b, c); err != nil {
			t.Error(err)
		}
	}
}

// WantError fails unless a call was answered with that reason.
func WantError(t *testing.T, err *query.Error, status int, reason string) {
	t.Helper()
	if err == nil || err.Status != status || err.Reason != reason {
		t.Errorf("got %+v, want status %d, reason %s", err, status, reason)
	}
}
