package hostcheck

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

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
	o := mig.Options{Owner: l.MIGOwner, Boot: mig.Boot()}
	var err error
	if o.Record, err = l.record(); err != nil {
		l.add("mig-layout", "why", err.Error())
		return
	}
	layout, err := mig.Plan(d, l.MIG, o)
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

// record returns what a daemon made and left in its state folder.
func (l *looking) record() (r mig.Record, err error) {
	if l.Record == "" {
		return r, nil
	}
	data, err := os.ReadFile(l.path(l.Record))
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	if err == nil {
		r, err = mig.ParseRecord(data)
	}
	if err != nil {
		return r, fmt.Errorf("the record of MIG instances %s: %w", l.Record, err)
	}
	return r, nil
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
