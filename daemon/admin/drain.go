package admin

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
)

// Methods of the resource /drain.
const (
	DrainBegin  = http.MethodPost
	DrainCancel = http.MethodDelete
	DrainShow   = http.MethodGet
)

// drained is the response of /drain. Open has the number of unanswered requests by service,
// without services that have none. Ended counts the requests that have ended.
type drained struct {
	Open  map[string]int64 `json:"open"`
	Ended uint64           `json:"ended"`
}

// drain starts or cancels draining, and always responds with the current numbers.
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

// Drain starts draining, cancels it, or only shows the state, depending on do. It returns
// the number of unanswered requests by service and how many requests have ended. A drained
// daemon reports that it is not ready but still answers queries.
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
