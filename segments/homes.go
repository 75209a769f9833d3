package segments

// On a device whose memory is not the host's, every value has a home: the
// device, or the host for what sessions make or want there, such as shapes.
// Values at home on the device are planned and bounded like all intermediates.
// Those of the host are small, and left to ONNX Runtime.

// findHomes asks the sessions where their ends lie.
func (e *CutModel) findHomes() error {
	e.hostHome = make([]bool, len(e.types))
	e.waits = make([]bool, len(e.cut.pieces))
	if !e.device.far() {
		return nil
	}
	wants, err := e.findEndsOfSessions()
	if err != nil {
		return err
	}
	for i, id := range e.inputs {
		e.hostHome[id] = true
		for _, u := range e.uses[i] {
			e.hostHome[id] = e.hostHome[id] && wants[u.piece][u.pos]
		}
	}
	for p := range e.cut.pieces {
		for pos, id := range e.cut.pieces[p].inputs {
			made := e.made[id].piece >= 0
			// What the host reads must be there, and ONNX Runtime copies between
			// homes without waiting for the stream.
			e.waits[p] = e.waits[p] || made && e.hostHome[id] || !e.hostHome[id] && wants[p][pos]
		}
	}
	for id := range e.hostHome {
		if e.hostHome[id] {
			e.known[id].shape = false // it has no place in the device's memory
		}
	}
	return nil
}

// findEndsOfSessions sets the homes of what the sessions make and returns, for
// each of their inputs, whether it is wanted in the host's memory.
func (e *CutModel) findEndsOfSessions() (wants [][]bool, err error) {
	wants = make([][]bool, len(e.sessions))
	for p, s := range e.sessions {
		in, err := s.InputMemory()
		if err != nil {
			return nil, err
		}
		for _, m := range in {
			wants[p] = append(wants[p], e.device.onHost(m))
		}
		out, err := s.OutputMemory()
		if err != nil {
			return nil, err
		}
		for pos, id := range e.cut.pieces[p].outputs {
			e.hostHome[id] = e.device.onHost(out[pos])
		}
	}
	return wants, nil
}
