package ort

/*
#cgo nocallback overlapd_program_run
#cgo noescape overlapd_program_run
#include "program.h"
*/
import "C"

import (
	"fmt"
	"strconv"
	"unsafe"
)

// Program is a list of steps that run one after another in a single crossing into C. A step
// is a session with its inputs and outputs. A program may be used by one goroutine at a
// time.
//
// If the caller sets no value for an output, the runtime allocates it at each run. The
// program owns such an output until the step runs again or the output is dropped. All
// sessions and values that a program refers to must stay open as long as it may run.
type Program struct {
	env      *Env
	sessions []*Session
	program  *C.struct_overlapd_program

	// steps is in C memory, so that a run passes no Go pointers.
	steps []C.struct_overlapd_step
}

// NewProgram returns a program of sessions of one Env. It has no inputs yet, and owns all
// of its outputs.
func NewProgram(sessions []*Session) (*Program, error) {
	if len(sessions) == 0 {
		return nil, fmt.Errorf("ort: a program needs a step")
	}
	e := sessions[0].env
	c := C.overlapd_program_new(e.lib.api, C.size_t(len(sessions)))
	if c == nil {
		return nil, ErrNoMemory
	}
	p := &Program{env: e, sessions: sessions, program: c, steps: unsafe.Slice(c.step, len(sessions))}
	e.open.programs.Add(1)
	for i, s := range sessions {
		if s.session == nil || s.env != e {
			_ = p.Close()
			return nil, fmt.Errorf("ort: step %d: %w", i, ErrClosed)
		}
		if !C.overlapd_program_set_step(c, C.size_t(i), s.session,
			s.inputNames, C.size_t(len(s.inputs)), s.outputNames, C.size_t(len(s.outputs))) {
			_ = p.Close()
			return nil, ErrNoMemory
		}
	}
	return p, nil
}

// NewBoundProgram is NewProgram for sessions whose inputs and outputs need not lie in host
// memory. An output without a value of the caller's stays in whatever memory the session
// creates it. If an input lies in other memory than the session expects, the runtime copies
// it, without waiting for the caller's streams. A run on a GPU returns when its kernels are
// queued, not when they have completed.
func NewBoundProgram(sessions []*Session) (*Program, error) {
	p, err := NewProgram(sessions)
	if err != nil {
		return nil, err
	}
	p.program.allocator, p.program.options = p.env.allocator, p.env.async
	for i := range sessions {
		if err := p.env.lib.check(C.overlapd_program_bind(p.program, C.size_t(i))); err != nil {
			_ = p.Close()
			return nil, fmt.Errorf("ort: step %d: binding: %w", i, err)
		}
	}
	return p, nil
}

// noGraph is the graph ID with which the runtime does not use CUDA graphs.
const noGraph = -1

// asyncOptions returns options for runs that return once their kernels are queued, with the
// ID of a CUDA graph. The caller releases them.
func asyncOptions(l *Library, graph int) (options *C.OrtRunOptions, err error) {
	keys, values, free := cStrings(map[string]string{
		"disable_synchronize_execution_providers": "1", "gpu_graph_id": strconv.Itoa(graph),
	})
	defer free()
	err = l.check(C.ort_CreateRunOptions(l.api, &options))
	for i := 0; i < len(keys) && err == nil; i++ {
		err = l.check(C.ort_AddRunConfigEntry(l.api, options, keys[i], values[i]))
	}
	if err != nil && options != nil {
		C.ort_ReleaseRunOptions(l.api, options)
		options = nil
	}
	return options, err
}

// NumberGraphs sets the ID of a bound program's CUDA graphs. No other program of its
// sessions may have used that ID, even before: sessions keep their graphs until they are
// closed.
func (p *Program) NumberGraphs(n int) error {
	options, err := asyncOptions(p.env.lib, n)
	if err != nil {
		return err
	}
	if p.program.graph != nil {
		C.ort_ReleaseRunOptions(p.env.lib.api, p.program.graph)
	}
	p.program.graph = options
	return nil
}

// Graphs enables or disables CUDA graphs for the steps that follow. It has no effect before
// NumberGraphs. A session with CUDAOptions.Graphs captures its first run, for which it runs
// several times, and replays it from then on. A replay uses the same values, and as scratch
// memory the part of the arena that was free during the capture.
func (p *Program) Graphs(on bool) { p.program.graphs = C.bool(on && p.program.graph != nil) }

// HasGraphs reports whether Graphs is enabled.
func (p *Program) HasGraphs() bool { return bool(p.program.graphs) }

// Use makes later runs use other sessions of the same models, such as those with other
// threads. The sessions with which an unbound program was made must stay open, too.
func (p *Program) Use(sessions []*Session) error {
	if len(sessions) != len(p.steps) {
		return fmt.Errorf("ort: %d sessions for %d steps", len(sessions), len(p.steps))
	}
	if unsafe.SliceData(sessions) == unsafe.SliceData(p.sessions) {
		return nil
	}
	for i, s := range sessions {
		if s.session == nil || s.env != p.env || p.steps[i].binding != nil {
			return fmt.Errorf("ort: step %d: %w", i, ErrClosed)
		}
	}
	for i, s := range sessions {
		p.steps[i].session = s.session
	}
	p.sessions = sessions
	return nil
}

// Synchronize makes later runs of a bound program on a GPU wait until their kernels have
// completed, or not.
func (p *Program) Synchronize(on bool) { p.program.synchronous = C.bool(on) }

// Synchronizes reports whether Synchronize is enabled.
func (p *Program) Synchronizes() bool { return bool(p.program.synchronous) }

func (p *Program) inputs(step int) []*C.OrtValue {
	return unsafe.Slice(p.steps[step].input, p.steps[step].inputs)
}

func (p *Program) links(step int) []**C.OrtValue {
	return unsafe.Slice(p.steps[step].link, p.steps[step].inputs)
}

func (p *Program) outputs(step int) []*C.OrtValue {
	return unsafe.Slice(p.steps[step].output, p.steps[step].outputs)
}

func (p *Program) owned(step int) []C.uint8_t {
	return unsafe.Slice(p.steps[step].owned, p.steps[step].outputs)
}

// SetInput sets the input of a step. v may be nil until the step runs.
func (p *Program) SetInput(step, input int, v *Value) {
	p.links(step)[input] = nil
	p.inputs(step)[input] = v.pointer()
}

// Link connects the input of a step to an earlier step's output, which is looked up when
// the step runs.
func (p *Program) Link(step, input, from, output int) {
	p.links(step)[input] = &p.outputs(from)[output]
	p.inputs(step)[input] = nil
}

// SetOutput sets the buffer of an output, whose shape v must have. With nil the runtime
// allocates the output.
func (p *Program) SetOutput(step, output int, v *Value) {
	p.Drop(step, output)
	p.outputs(step)[output] = v.pointer()
	p.owned(step)[output] = 0
	if v.pointer() == nil {
		p.owned(step)[output] = 1
	}
}

// DropAfter releases an owned output as soon as step, its last reader, has run. That keeps
// the peak memory of a run low.
func (p *Program) DropAfter(step, from, output int) error {
	_, _ = p.steps[step], p.outputs(from)[output]
	if !C.overlapd_program_drop_after(p.program, C.size_t(step), C.size_t(from), C.size_t(output)) {
		return ErrNoMemory
	}
	return nil
}

// Drop releases an owned output that a run has left.
func (p *Program) Drop(step, output int) {
	if p.owned(step)[output] != 0 && p.outputs(step)[output] != nil {
		C.overlapd_program_drop(p.program, C.size_t(step), C.size_t(output))
	}
}

// Output lends an output, or returns nil if there is none. The value is valid until the
// step runs again, the output is dropped, or the program is closed.
func (p *Program) Output(step, output int) *Value {
	v := p.outputs(step)[output]
	if v == nil {
		return nil
	}
	return &Value{env: p.env, value: v, borrowed: true}
}

// Run runs the steps [start, end). Before each step it reads stop, which may be nil or lie
// in shared memory, and returns if that is not 0. reached is the first step that did not
// run: end, or the step at which the run was stopped or failed. A successful run allocates
// no Go memory.
func (p *Program) Run(start, end int, stop *uint32) (reached int, err error) {
	return p.run(start, end, stop, nil)
}

// RunTimed is Run, and also stores how long each step took, in nanoseconds, in the element
// of nanos with the step's number.
func (p *Program) RunTimed(start, end int, stop *uint32, nanos []int64) (reached int, err error) {
	if len(nanos) < end {
		return start, fmt.Errorf("ort: room for the times of %d steps, %d needed", len(nanos), end)
	}
	return p.run(start, end, stop, unsafe.SliceData(nanos))
}

func (p *Program) run(start, end int, stop *uint32, nanos *int64) (int, error) {
	if p.program == nil {
		return start, ErrClosed
	}
	if start < 0 || start > end || end > len(p.steps) {
		return start, fmt.Errorf("ort: steps [%d, %d) of a program of %d", start, end, len(p.steps))
	}
	refused := p.env.refusals()
	status := C.overlapd_program_run(p.program, C.size_t(start), C.size_t(end),
		(*C.uint32_t)(stop), (*C.int64_t)(nanos))
	reached := int(p.program.reached)
	if status != nil {
		return reached, p.fail(reached, status, refused)
	}
	return reached, nil
}

// fail converts the status of a step to an error that names the step's session.
func (p *Program) fail(step int, status *C.OrtStatus, refused int64) error {
	err := p.env.ran(status, refused)
	if name := p.sessions[step].name; name != "" {
		return fmt.Errorf("step %d (%s): %w", step, name, err)
	}
	return fmt.Errorf("step %d: %w", step, err)
}

// Close releases the program and the outputs that it owns, but not the sessions and values
// that it refers to.
func (p *Program) Close() error {
	if p.program == nil {
		return ErrClosed
	}
	C.overlapd_program_free(p.program)
	p.program, p.steps = nil, nil
	p.env.open.programs.Add(-1)
	return nil
}
