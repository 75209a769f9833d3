package overlap

import "github.com/overlapd/overlapd/models"

// service returns what a command says of a service.
func (a args) service(id models.ServiceID) models.Service {
	return models.Service{
		ID: id, Name: a.words[0],
		Operators: a.number("operators", 4), QoSTarget: a.ms("qos", 1000),
		QueueLimit: a.number("queue", 10), MaxBatch: a.number("batch", 1), Ladder: a.number("ladder", 0) > 0,
		BestEffort: a.number("besteffort", 0) > 0, Of: a.text("of"), Accuracy: float64(a.number("accuracy", 0)),
	}
}

// change adds, changes or removes a service. It is false for other commands.
func (c *script) change(a args) bool {
	var err error
	switch a.name {
	case "add":
		m := a.service(models.ServiceID(a.number("id", len(c.config.Services))))
		if err = c.s.add(c.now, m); err == nil {
			c.costs.set(m.ID, a.ms("op", 10), a.number("grow", 100))
			c.define(m)
		}
	case "change":
		m := a.service(c.service(a.words[0]))
		if err = c.s.change(c.now, m); err == nil {
			c.define(m)
		}
	case "remove":
		id := c.service(a.words[0])
		if err = c.s.remove(c.now, id); err == nil {
			c.config.Services[id].Name = ""
		}
	default:
		return false
	}
	if err != nil {
		c.printf("%v", err)
	}
	return true
}

func (c *script) define(m models.Service) {
	if int(m.ID) == len(c.config.Services) {
		c.config.Services = append(c.config.Services, m)
	}
	c.config.Services[m.ID] = m
}
