package http

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"slices"

	"github.com/valyala/fasthttp"

	"github.com/overlapd/overlapd/daemon/query"
)

// repositoryPrefix begins the paths of models in the repository.
var repositoryPrefix = []byte("/v2/repository/models/")

// splitChange returns the model and the change, such as "load", that a path asks for, or no
// model if it is another path.
func splitChange(path []byte) (model, change []byte) {
	rest, ok := bytes.CutPrefix(path, repositoryPrefix)
	if !ok {
		return nil, nil
	}
	model, change, _ = bytes.Cut(rest, []byte{'/'})
	return model, change
}

// controlBytes limits the body of a request to the model repository.
const controlBytes = 64 << 10

// errLargeControl is the error for a larger body. The only reason for one is to bring the
// files of a model.
var errLargeControl = func() *query.Error {
	err := *errBodyTooLarge(controlBytes)
	err.Message = "the body of a request to the model repository has at most 64 KiB: put the files of a model in the repository itself"
	return &err
}()

// control reads the body of a request to the model repository into v. An empty body leaves
// v unchanged.
func (p *pages) control(ctx *fasthttp.RequestCtx, v any) *query.Error {
	if int64(ctx.Request.Header.ContentLength()) > controlBytes {
		closeAfter(ctx)
		return errLargeControl
	}
	b, err := (&bodies{memory: p.bodies.memory, most: controlBytes}).read(ctx)
	if err != nil {
		if err.Reason == query.ReasonTooLarge {
			err = errLargeControl
		}
		return err
	}
	defer b.Release()
	if len(bytes.TrimSpace(b.Bytes)) > 0 && json.Unmarshal(b.Bytes, v) != nil {
		return query.Invalid("the body must be a JSON object, as Triton's model repository extension describes it, or empty")
	}
	return nil
}

// index answers with the repository index.
func (p *pages) index(ctx *fasthttp.RequestCtx, _ *query.Service) {
	var asked struct {
		Ready bool `json:"ready"`
	}
	if err := p.control(ctx, &asked); err != nil {
		writeError(ctx, err)
		return
	}
	p.writeJSON(ctx, query.Index(p.Queries.Services(), asked.Ready))
}

func (p *pages) load(ctx *fasthttp.RequestCtx, _ *query.Service)   { p.change(ctx, true) }
func (p *pages) unload(ctx *fasthttp.RequestCtx, _ *query.Service) { p.change(ctx, false) }

// change loads or unloads a model and answers when that is done, in KServe's form. Triton
// sends nothing, and its clients read nothing. It stops waiting if the client disconnects.
func (p *pages) change(ctx *fasthttp.RequestCtx, load bool) {
	var asked struct {
		Parameters map[string]json.RawMessage `json:"parameters"`
	}
	err := p.control(ctx, &asked)
	name, _ := splitChange(ctx.URI().PathOriginal())
	if err == nil {
		waiting := context.Background()
		if c, ok := ctx.Conn().(*conn); ok {
			waiting = c.here
		}
		err = p.Queries.Change(waiting, string(name), load, slices.Sorted(maps.Keys(asked.Parameters)))
	}
	if err != nil {
		writeError(ctx, err)
		return
	}
	did := "unload"
	if load {
		did = "load"
	}
	p.writeJSON(ctx, map[string]any{"name": string(name), did: true})
}
