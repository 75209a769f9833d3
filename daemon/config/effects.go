package config

import (
	"slices"
	"strings"
	"time"
)

// effect is when a key outside the services takes effect that is changed while
// the daemon runs.
type effect uint8

const (
	atRestart effect = iota + 1
	atOnce
)

// effects holds every key outside the services; a test finds one that is
// missing. A table stands for all of its keys.
var effects = map[string]effect{
	"listen":         atRestart, // clients hold connections to it
	"grpc_listen":    atRestart,
	"state_dir":      atRestart, // one daemon owns one
	"device":         atRestart, // every worker runs on it
	"gpu":            atRestart,
	"device_profile": atRestart,
	"device_seed":    atRestart,
	"policy":         atRestart, // the scheduler, and what was queued by its rules
	"ways":           atRestart,
	"drain_timeout":  atOnce,
	"log_level":      atOnce,
	"log_format":     atRestart, // one log, one form
	"metrics":        atRestart,
	"admin_socket":   atRestart, // what asks for the reload is connected to it
	"admin_group":    atRestart,
	"tls":            atRestart, // listeners speak it or not; the files that it names are read anew all the same
	"access":         atRestart, // likewise
	"limits":         atRestart, // connections that are open were accepted under them
	"worker":         atRestart, // every worker has them, or waits by them
	"profile":        atRestart, // what is measured follows one plan
	"predictor":      atRestart,
	"decisions":      atRestart,
	"tracing":        atRestart, // one collector, one tracer
	"cuda":           atRestart, // every worker has them
	"mps":            atRestart, // every worker is a client of it
	"mig":            atRestart, // but for the places of services that come and go
}

// effectOf returns the effect of a key such as limits.connections, 0 if nobody
// said.
func effectOf(key string) effect {
	if e, ok := effects[key]; ok {
		return e
	}
	table, _, _ := strings.Cut(key, ".")
	return effects[table]
}

// keyList notes keys and their values, in the order of the file. It is what a
// configuration is compared by: a key that can be written counts, and no other.
type keyList struct {
	prefix string
	names  []string
	values map[string]string
}

// listKeys returns the keys of a configuration outside its services, and of
// [mig] only the owner: who lives where is another question.
func listKeys(c Config) *keyList {
	c.MIG.Instances = nil
	k := &keyList{values: map[string]string{}}
	c.keys(k)
	return k
}

func (k *keyList) note(key, value string) {
	k.names = append(k.names, k.prefix+key)
	k.values[k.prefix+key] = value
}

// print notes a value as it is printed.
func (k *keyList) print(key string, visit func(p *tomlPrinter)) {
	p := new(tomlPrinter)
	visit(p)
	k.note(key, string(p.b))
}

func (k *keyList) text(key string, v *string) { k.note(key, *v) }
func (k *keyList) texts(key string, v *[]string) {
	k.print(key, func(p *tomlPrinter) { p.texts(key, v) })
}
func (k *keyList) number(key string, v *int) { k.print(key, func(p *tomlPrinter) { p.number(key, v) }) }
func (k *keyList) numbers(key string, v *[]int) {
	k.print(key, func(p *tomlPrinter) { p.numbers(key, v) })
}
func (k *keyList) flag(key string, v *bool) { k.print(key, func(p *tomlPrinter) { p.flag(key, v) }) }
func (k *keyList) bytes(key string, v *int64) {
	k.print(key, func(p *tomlPrinter) { p.bytes(key, v) })
}
func (k *keyList) ratio(key string, v *float64) {
	k.print(key, func(p *tomlPrinter) { p.ratio(key, v) })
}
func (k *keyList) duration(key string, v *time.Duration) { k.note(key, v.String()) }

func (k *keyList) table(key string, visit func(keys)) {
	outer := k.prefix
	k.prefix += key + "."
	visit(k)
	k.prefix = outer
}

// tables notes nothing: there are none but those of [mig].
func (k *keyList) tables(string, int, func(int) int, func(int, keys)) {}

// differ returns the keys of which the values are not the same.
func (k *keyList) differ(other *keyList) []string {
	return slices.DeleteFunc(slices.Clone(k.names), func(key string) bool {
		return k.values[key] == other.values[key]
	})
}
