// Package dashboard is the page that the daemon serves to people. [Page] is one
// document with its styles and its program in it, made from the files beside
// this one; it asks nobody but the daemon that it came from, and its policy lets
// it do no more.
package dashboard

import (
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"strings"
	"sync"
)

//go:embed page.html page.css *.js
var files embed.FS

// scripts are the parts of the page's program, in the order in which they run.
var scripts = []string{"text.js", "services.js", "timeline.js", "decision.js", "token.js", "page.js"}

// Page returns the page, in HTML, and the Content-Security-Policy that it is to be
// served with: it runs its own program and styles, and talks to its own daemon only.
func Page() (html, policy string) { return build() }

var build = sync.OnceValues(func() (html, policy string) {
	styles, program := read("page.css"), ""
	for _, name := range scripts {
		program += read(name)
	}
	html = strings.NewReplacer("/*styles*/", styles, "/*program*/", program).Replace(read("page.html"))
	return html, "default-src 'none'; connect-src 'self'; img-src data:; " +
		"style-src " + hash(styles) + "; script-src " + hash(program) + "; " +
		"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
})

// read returns an embedded file.
func read(name string) string {
	text, err := files.ReadFile(name)
	if err != nil {
		panic(err) // it is part of the program
	}
	return string(text)
}

// hash names a text in a policy.
func hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}
