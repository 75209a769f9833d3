// Package ort is a thin layer over ONNX Runtime's C ABI. The library is loaded
// at run time: building needs neither it nor its header. The engine of package
// segments runs models with it, inside workers. Commands that look at models or at
// the host open it too; the daemon opens it when it starts, to check its version,
// and runs nothing.
//
// Sessions run on the CPU, or on an NVIDIA GPU through [CUDAOptions]. There a
// [Memory] names the GPU's memory, [Env.TensorAt] makes tensors in it, and a
// program made by [NewBoundProgram] leaves them there.
//
// A [Library] is the loaded runtime, an [Env] its threads and its arena, a
// [Session] a model ready to run, a [Value] a tensor (or sequence) that goes in
// or out, and a [Program] a list of sessions that run one after the other in
// one crossing into C.
//
// Everything but the Library is C memory that the garbage collector does not
// see: close what you open, values and programs before their sessions, the Env
// last. Env.Close reports what was forgotten. Unless a method says otherwise, a
// thing may be used by one goroutine at a time; sessions may be run by many.
package ort
