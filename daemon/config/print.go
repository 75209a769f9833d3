package config

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// TOML returns the configuration as a file that Parse reads back.
func (c Config) TOML() []byte {
	p := &tomlPrinter{}
	c.keys(p)
	for i := range c.Services {
		p.head("[[service]]")
		c.Services[i].keys(p)
	}
	return p.b
}

// tomlPrinter prints the keys it visits, in that order.
type tomlPrinter struct {
	b      []byte
	prefix string // of the table
}

func (p *tomlPrinter) line(key, value string) {
	p.b = fmt.Appendf(p.b, "%s = %s\n", key, value)
}

func (p *tomlPrinter) head(line string) { p.b = append(p.b, "\n"+line+"\n"...) }

func (p *tomlPrinter) text(key string, v *string) { p.line(key, quoteTOML(*v)) }
func (p *tomlPrinter) number(key string, v *int)  { p.line(key, strconv.Itoa(*v)) }
func (p *tomlPrinter) flag(key string, v *bool)   { p.line(key, strconv.FormatBool(*v)) }
func (p *tomlPrinter) ratio(key string, v *float64) {
	p.line(key, strconv.FormatFloat(*v, 'f', -1, 64))
}
func (p *tomlPrinter) duration(key string, v *time.Duration) { p.line(key, quoteTOML(v.String())) }
func (p *tomlPrinter) bytes(key string, v *int64)            { p.line(key, quoteTOML(formatBytes(*v))) }

func (p *tomlPrinter) texts(key string, v *[]string) {
	quoted := make([]string, len(*v))
	for i, s := range *v {
		quoted[i] = quoteTOML(s)
	}
	p.line(key, "["+strings.Join(quoted, ", ")+"]")
}

func (p *tomlPrinter) numbers(key string, v *[]int) {
	printed := make([]string, len(*v))
	for i, n := range *v {
		printed[i] = strconv.Itoa(n)
	}
	p.line(key, "["+strings.Join(printed, ", ")+"]")
}

func (p *tomlPrinter) table(key string, visit func(keys)) {
	p.head("[" + p.prefix + key + "]")
	p.prefix += key + "."
	visit(p)
	p.prefix = strings.TrimSuffix(p.prefix, key+".")
}

func (p *tomlPrinter) tables(key string, n int, _ func(int) int, visit func(int, keys)) {
	for i := range n {
		p.head("[[" + p.prefix + key + "]]")
		visit(i, p)
	}
}

// quoteTOML returns a basic string. TOML's escapes are those of JSON, except
// that DEL needs one too.
func quoteTOML(s string) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(s) // a string can be encoded
	return strings.ReplaceAll(strings.TrimSuffix(b.String(), "\n"), "\x7f", `\u007f`)
}
