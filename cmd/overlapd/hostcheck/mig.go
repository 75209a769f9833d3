package hostcheck

import (
	"fmt"

	"github.com/overlapd/overlapd/cuda/mig"
)

// lookAtMIG compares the instances with those that the configuration declares.
func (l *looking) lookAtMIG() {
	d := l.target.Device
	if len(l.MIG) == 0 {
		if d.MIG.Enabled && l.target.Instance == nil {
			l.add("mig-whole", "gpu", fmt.Sprintf("GPU %d", d.Index), "index", fmt.Sprint(d.Index), "instances", l.instances())
		}
		return
	}
	if l.MIGOwner && l.User != 0 {
		l.add("mig-root", "user", fmt.Sprint(l.User))
	}
	layout, err := mig.Plan(d, l.MIG, mig.Options{Owner: l.MIGOwner})
	if err != nil {
		l.add("mig-layout", "why", err.Error())
		return
	}
	l.Layout = layout.String()
	if steps := layout.Steps(); len(steps) > 0 {
		l.add("mig-steps", "steps", fmt.Sprint(len(steps)))
		return
	}
	l.add("mig", "instances", fmt.Sprint(len(l.MIG)))
}

// instances names the MIG devices that there are.
func (l *looking) instances() string {
	var names []string
	for _, i := range l.target.Device.Instances {
		for _, c := range i.Compute {
			names = append(names, c.UUID)
		}
	}
	return words(names)
}
