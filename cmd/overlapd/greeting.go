package main

import (
	"fmt"
	"net"
	"strings"

	"github.com/overlapd/overlapd/daemon/config"
)

// greeting is what a person is told when the daemon is ready: requests that
// can be pasted into another terminal. Program is the command that runs there.
// Models of half precision have no example, since FP16 has no JSON form.
func greeting(program string, addr net.Addr, c config.Config) string {
	if addr.Network() == "unix" {
		return ""
	}
	url := "http://" + addr.String()
	var b strings.Builder
	note := ""
	if c.Emulated() {
		note = ", on an emulated device: nothing is computed"
	}
	fmt.Fprintf(&b, "\noverlapd is ready at %s%s. Try:\n\n", url, note)
	var names []string
	for _, s := range c.Services {
		names = append(names, s.Name)
		switch strings.TrimPrefix(s.Model, config.ZooPrefix) {
		case "bert":
			fmt.Fprintf(&b, `  curl -s %s/v2/models/%s/infer -d '{"inputs":[
    {"name":"input_ids","datatype":"INT64","shape":[1,4],"data":[101,7592,2088,102]},
    {"name":"attention_mask","datatype":"INT64","shape":[1,4],"data":[1,1,1,1]},
    {"name":"token_type_ids","datatype":"INT64","shape":[1,4],"data":[0,0,0,0]}],
    "outputs":[{"name":"pooler_output"}]}' | cut -c -200

`, url, s.Name)
		case "resnet50", "resnet101", "resnet152", "vgg16", "vgg19":
			fmt.Fprintf(&b, `  (printf '{"inputs":[{"name":"input","datatype":"FP32","shape":[1,3,224,224],"data":[0.5'
   yes ,0.5 | head -n 150527 | tr -d '\n'; printf ']}]}') |
    curl -s %s/v2/models/%s/infer --data-binary @- | cut -c -200

`, url, s.Name)
		}
	}
	fmt.Fprintf(&b, "  %s bench serve --url %s --service %s --rate 4 --duration 10s\n\n", program, url, strings.Join(names, ","))
	fmt.Fprintf(&b, "Ctrl-C stops it; what was accepted is answered first.\n\n")
	return b.String()
}
