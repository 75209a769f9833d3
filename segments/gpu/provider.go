package gpu

import (
	"fmt"
	"maps"
	"os"

	"github.com/overlapd/overlapd/ort"
)

// cuda is ONNX Runtime's CUDA execution provider.
type cuda struct{}

// Memory registers one arena for all sessions.
func (cuda) Memory(env *ort.Env, cuda ort.CUDAOptions) (*ort.Memory, error) {
	if err := env.RegisterCUDAArena(cuda); err != nil {
		return nil, err
	}
	if err := env.RegisterPinnedArena(cuda); err != nil {
		fmt.Fprintln(os.Stderr, "overlapd worker: warning: each session has its own arena of pinned memory, and closing it may end the worker:", err)
	}
	return env.NewMemory(ort.CUDAMemory, cuda.Device)
}

// Key names the GPU, and the options that select kernels.
func (cuda) Key(device string, cuda ort.CUDAOptions) string {
	return fmt.Sprintf("%s %s tf32=%t", ort.CUDAProvider, device, cuda.TF32)
}

// keyDeviceInitializers is an option of ONNX Runtime that keeps weights out of the arena,
// which would round up the size of their memory.
const keyDeviceInitializers = "session.use_device_allocator_for_initializers"

// Session enables TF32 for convolutions of half precision, because cuDNN does not use the
// tensor cores for them otherwise. It disables ONNX Runtime's single block for all
// intermediates of a session: older versions do not return blocks that another thread has
// allocated, and all sessions share the arena.
func (cuda) Session(o *ort.SessionOptions, cuda ort.CUDAOptions, half bool) {
	cuda.TF32 = cuda.TF32 || half
	o.CUDA, o.NoMemoryPattern = &cuda, true
	config := map[string]string{keyDeviceInitializers: "1"}
	maps.Copy(config, o.Config)
	o.Config = config
}

func (cuda) Homes(s *ort.Session) (inputs, outputs []bool, err error) { return s.OnHost() }
