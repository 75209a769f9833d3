package models

import "time"

// Estimate is what a predictor says of an operator group.
type Estimate struct {
	Latency time.Duration // what the group takes in the middle of its runs, 0 if unknown
	Bound   time.Duration // what 99 of 100 of its runs stay within; at least Latency, 0 if unknown
}
