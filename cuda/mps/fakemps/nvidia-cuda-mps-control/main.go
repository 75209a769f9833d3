// Command nvidia-cuda-mps-control is the fake MPS control program, to try
// things by hand on a machine without a GPU.
package main

import "github.com/overlapd/overlapd/cuda/mps/fakemps"

func main() { fakemps.Main() }
