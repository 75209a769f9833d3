package gpu

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/overlapd/overlapd/cuda"
	"github.com/overlapd/overlapd/cuda/mig"
	"github.com/overlapd/overlapd/cuda/mps"
)

// Mode says whether the services of a part share it through MPS.
type Mode string

// The modes.
const (
	Own      Mode = "own"      // a control daemon of our own for each part
	Existing Mode = "existing" // the one that serves Config.MPSDir
	Off      Mode = "off"
)

// Config says which GPU to take and what for.
type Config struct {
	Name      string     // index, UUID or PCI address, "" for the first
	StateDir  string     // where the record of MIG instances lies
	Owner     bool       // instances may be created, and are destroyed again
	Instances []mig.Want // none for a GPU, or an instance, that is used as it is
	Services  []string   // of one that is used as it is
	MPS       Mode
	MPSDir    string // "" for one of our choice, or where clients look for the existing one
}

// Options are how the hardware is reached. Zero is the host's own.
type Options struct {
	NVML func() (*cuda.Host, error)
	MPS  mps.Options // its program and times; device and directory follow from the part
	Boot string      // of the host
}

const (
	// busyTries and busyPause bound the wait until the driver has noticed that
	// the last process in an instance is gone.
	busyTries = 50
	busyPause = 100 * time.Millisecond
)

// boot returns what tells this boot of the host from others.
func (o Options) boot() string {
	if o.Boot != "" {
		return o.Boot
	}
	return mig.Boot()
}

// uuidShown is how much of a UUID names the directory of a part: the path of a
// socket has little room. Another part with the same beginning finds the
// directory locked.
const uuidShown = len("GPU-") + 8

// MPSDirOf returns the directory of a part's own control daemon, below the one that
// is configured: "" is in what systemd gives, else in the user's own.
func MPSDirOf(configured, uuid string) string {
	if configured == "" {
		configured = filepath.Join(runtimeDir(), "mps")
	}
	return filepath.Join(configured, uuid[:min(len(uuid), uuidShown)])
}

// runtimeDir is what systemd gives, else the user's own.
func runtimeDir() string {
	for _, variable := range []string{"RUNTIME_DIRECTORY", "XDG_RUNTIME_DIR"} {
		if dir := os.Getenv(variable); filepath.IsAbs(dir) {
			return dir
		}
	}
	return filepath.Join(os.TempDir(), fmt.Sprintf("overlapd-%d", os.Geteuid()))
}
