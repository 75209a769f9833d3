package loop

// replica is the worker of a service on a device.
type replica struct {
	place Place
	state replicaState

	// fault is why no worker is expected soon, nil if that is not known. retryAt is when it is tried
	// again all the same, in nanoseconds of Unix time, 0 if by hand only.
	fault   error
	retryAt int64

	starts int  // of the worker
	lost   int  // workers, while the service joins
	recut  bool // it was started again to be cut as the others are
	leaves bool // a reload has taken the service off the device: it goes as soon as another one serves
}

// replicaState is how the worker of a service on a device stands.
type replicaState uint8

const (
	replicaLoading    replicaState = iota // no worker has loaded the model yet
	replicaRestarting                     // the worker was lost, and another one loads the model
	replicaFresh                          // the worker is ready, and no round of it was sent yet
	replicaReady                          // the worker is ready
	replicaOverrun                        // a span that measures runs on, and the worker can run nothing else
	replicaFailed                         // no worker is expected soon
	replicaStates
)

// happening is what changes the state of a replica.
type happening uint8

const (
	modelLoaded  happening = iota
	roundSent              // with a span of the service
	spanOverran            // one that measures, and was detached
	spanLanded             // such a span has ended
	workerLost             // or stopped
	workerFailed           // for good, or to be tried again after a while
)

// transitions are the states that follow, by what happens. Why fresh differs from ready: a span is
// known to be lost before its worker is, unless the next worker is ready by then, and a worker to
// which nothing was sent cannot be the one that was lost.
var transitions = [...][replicaStates]replicaState{
	//             loading, restarting, fresh, ready, overrun, failed
	modelLoaded:  {replicaFresh, replicaFresh, replicaFresh, replicaFresh, replicaFresh, replicaFresh},
	roundSent:    {replicaLoading, replicaRestarting, replicaReady, replicaReady, replicaOverrun, replicaFailed},
	spanOverran:  {replicaLoading, replicaRestarting, replicaOverrun, replicaOverrun, replicaOverrun, replicaFailed},
	spanLanded:   {replicaLoading, replicaRestarting, replicaFresh, replicaReady, replicaReady, replicaFailed},
	workerLost:   {replicaLoading, replicaRestarting, replicaRestarting, replicaRestarting, replicaRestarting, replicaFailed},
	workerFailed: {replicaFailed, replicaFailed, replicaFailed, replicaFailed, replicaFailed, replicaFailed},
}

// on changes the state by what has happened.
func (r *replica) on(h happening) { r.state = transitions[h][r.state] }

// ready reports whether there is a worker that has loaded its model.
func (r *replica) ready() bool {
	return r.state == replicaFresh || r.state == replicaReady || r.state == replicaOverrun
}

// awaited reports whether a worker is expected that has not loaded its model.
func (r *replica) awaited() bool { return r.state == replicaLoading || r.state == replicaRestarting }
