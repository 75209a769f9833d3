package segments

import "time"

// TakeTurns runs two things one after the other, in changing order, so that
// whatever slows the machine down slows both. It goes on while more says so of
// the number of rounds done. It returns how long each took, by round.
func TakeTurns(first, second func() error, more func(rounds int) bool) (a, b []time.Duration, err error) {
	runs := [2]func() error{first, second}
	var took [2][]time.Duration
	for n := 0; more(n); n++ {
		for i := range runs {
			at := (i + n) % 2
			started := time.Now()
			if err := runs[at](); err != nil {
				return nil, nil, err
			}
			took[at] = append(took[at], time.Since(started))
		}
	}
	return took[0], took[1], nil
}
