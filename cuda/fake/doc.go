// Package fake is a host full of GPUs for tests: the fake server of go-nvml,
// given the rules of real MIG hardware.
//
// A [Server] is an nvml.Interface with [Device]s of a [Model]. It keeps where
// instances may lie, how many there may be, what must be created and destroyed
// before what, who may ask for what, and that nothing in use is destroyed. It
// fails where a test asks for it and logs every call that changes something.
//
// Only tests import it. Sources of the tables: NVIDIA's MIG user guide
// (docs.nvidia.com/datacenter/tesla/mig-user-guide, "Supported MIG Profiles" and
// the outputs of nvidia-smi mig -lgip and -lgipp in "Getting Started"); the rules
// are the comments of nvml.h. Where the guide has no number for the memory of a
// profile, the share of the GPU's memory is used.
package fake
