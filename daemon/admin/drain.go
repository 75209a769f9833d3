package admin

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
)

// What a client may do about draining.
const (
	DrainBegin  = http.MethodPost
	DrainCancel = http.MethodDelete
	DrainShow   = http.MethodGet
)

// drained is the answer about draining. Open are the requests that are not answered, by
// service, without services that have none.
type drained struct {
	Open  map[string]int64 `json:"open"`
	Ended uint64           `json:"ended"`
}

func (s *server) drain(w http.ResponseWriter, r *http.Request) {
	host := s.reloads.host
	var err error
	if r.Method != DrainShow {
		err = host.Leave(r.Method == DrainBegin)
	}
	var now drained
	if err == nil {
		now.Open, now.Ended, err = host.Open()
	}
	if err != nil {
		refuse(w, told(err))
		return
	}
	writeJSON(w, http.StatusOK, now)
}

// Drain has the daemon say that it is not ready, takes that back, or changes nothing. It
// returns how many requests each service has that are not answered, and how many have ended.
func (c *Client) Drain(ctx context.Context, do string) (open map[string]int64, ended uint64, err error) {
	r, err := c.do(ctx, do, "/drain")
	if err != nil {
		return nil, 0, err
	}
	defer r.Body.Close()
	var now drained
	if err := json.NewDecoder(io.LimitReader(r.Body, maxAnswerBytes)).Decode(&now); err != nil {
		return nil, 0, c.foreign(err)
	}
	return now.Open, now.Ended, nil
}
