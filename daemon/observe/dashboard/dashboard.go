// Package dashboard is the page that the daemon serves to people. [Page] is one
// document with its styles and its program in it, made from the files beside
// this one; it asks nobody but the daemon that it came from, and [Policy] lets
// it do no more.
package dashboard

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"slices"
	"sync"
)

//go:embed page.html page.css *.js
var files embed.FS

// scripts are the parts of the page's program, in the order in which they run.
var scripts = []string{"text.js", "services.js", "timeline.js", "decision.js", "token.js", "page.js"}

// Marks in page.html for what goes into it.
const (
	stylesMark = "/*styles*/"
	scriptMark = "/*program*/"
)

// built is the page, and what it may do.
type built struct {
	page   []byte
	policy string
}

var build = sync.OnceValue(func() built {
	styles, program := read("page.css"), []byte(nil)
	for _, name := range scripts {
		program = append(program, read(name)...)
	}
	page := bytes.Replace(read("page.html"), []byte(stylesMark), styles, 1)
	page = bytes.Replace(page, []byte(scriptMark), program, 1)
	return built{page, "default-src 'none'; connect-src 'self'; img-src data:; " +
		"style-src " + hash(styles) + "; script-src " + hash(program) + "; " +
		"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"}
})

// read returns an embedded file.
func read(name string) []byte {
	text, err := files.ReadFile(name)
	if err != nil {
		panic(err) // it is part of the program
	}
	return text
}

// hash names a text in a policy.
func hash(text []byte) string {
	sum := sha256.Sum256(text)
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

// Page returns the page, in HTML. It is the caller's.
func Page() []byte { return slices.Clone(build().page) }

// Policy returns the Content-Security-Policy that the page is to be served
// with: it runs its own program and styles, and talks to its own daemon only.
func Policy() string { return build().policy }
