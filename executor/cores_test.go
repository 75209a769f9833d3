package executor

import "testing"

// Runs never share a core, and one for which there are not enough goes where it can.
func TestCoresAreSharedOut(t *testing.T) {
	var c cores
	a, b := c.take(1, 4), c.take(2, 4)
	if a == 0 || b == 0 || a&b != 0 {
		t.Fatalf("took %b and %b", a, b)
	}
	if more := c.take(2, 4); more != 0 {
		t.Errorf("one core is free, and a run of two took %b", more)
	}
	if all := c.take(0, 4); all != 0 {
		t.Errorf("a run on all of them took %b", all)
	}
	c.give(a)
	if again := c.take(2, 4); again == 0 || again&b != 0 {
		t.Errorf("two cores are free, and a run took %b beside %b", again, b)
	}
	if none := c.take(1, 0); none != 0 {
		t.Errorf("a device without cores gave %b", none)
	}
}
