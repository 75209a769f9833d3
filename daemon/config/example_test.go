package config_test

import (
	"fmt"

	"github.com/overlapd/overlapd/daemon/config"
)

// A configuration is parsed, with all faults at once, and compared with another for a reload.
func Example() {
	_, err := config.Parse("overlapd.toml", []byte("lisen = \":80\"\n[[service]]\nname = \"text\"\nmodel = \"zoo:bert\"\ntarget = \"-5ms\"\n"))
	fmt.Println(err)

	const one = "[[service]]\nname = \"text\"\nmodel = \"zoo:bert\"\ntarget = \"50ms\"\n"
	old, err := config.Parse("overlapd.toml", []byte(one))
	if err != nil {
		panic(err)
	}
	fmt.Println(old.Listen, old.Service("text").Target)
	next, err := config.Parse("overlapd.toml", []byte(one+"[[service]]\nname = \"image\"\nmodel = \"zoo:resnet50\"\ntarget = \"20ms\"\n"))
	if err != nil {
		panic(err)
	}
	no := func(string) bool { return false }
	changes := config.Diff(old, next, no, no)
	fmt.Println("added:", changes.Added, "replaced:", changes.Replaced)
	// Output:
	// overlapd.toml:1: lisen: unknown key; did you mean listen?
	// overlapd.toml:5: service[0].target: must be above 0 and at most 24h0m0s, not -5ms
	// 127.0.0.1:8000 50ms
	// added: [image] replaced: []
}
