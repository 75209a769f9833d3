// Package ort is a thin layer over ONNX Runtime's C ABI. The library is loaded at run
// time; building needs neither the library nor its header. The engine of package segments
// runs models with it, inside workers. Commands that examine models or the host open it as
// well. The daemon only opens it at its start, to check the version.
//
// A [Library] is the loaded runtime. An [Env] has its threads and its arena. A [Session] is
// a model that is ready to run, and a [Value] is a tensor (or sequence) that goes in or
// out. A [Program] is a list of sessions that run one after another in a single crossing
// into C.
//
// Sessions run on the CPU, or on an NVIDIA GPU with [CUDAOptions]. For a GPU, a [Memory]
// names its memory, [Env.TensorAt] creates tensors there, and a program made by
// [NewBoundProgram] leaves its values there.
//
// Sessions may use custom operators of the libraries in [EnvOptions]. These are code of others,
// which only workers and child processes of commands load.
//
// Everything except the Library is C memory, which the garbage collector does not see.
// Close everything that was opened: values and programs before their sessions, the Env
// last. Env.Close reports what was forgotten. Unless its documentation says otherwise, an
// object may be used by one goroutine at a time. A session may be run by many.
package ort
