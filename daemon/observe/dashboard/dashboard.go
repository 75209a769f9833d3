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

//go:embed page.html page.css *.js uplot
var files embed.FS

// scripts are the parts of the page's program, in the order in which they run.
var scripts = []string{"uplot/uPlot.iife.min.js", "text.js", "services.js", "history.js", "timeline.js", "decision.js", "share.js", "token.js", "page.js"}

// sheets are the parts of the page's styles.
var sheets = []string{"uplot/uPlot.min.css", "page.css"}

// The files in uplot are those of uPlot 1.6.32, which draws the history, as the folder
// dist of the npm package uplot has them, with these SHA-256 sums. The package's own
// checksum is sha512-KIMVnG68zvu5XXUbC4LQEPnhwOxBuLyW1AHtpm6IKTXImkbLgkMy+jabjLgSLMasNuGGzQm/ep3tOkyTxpiQIw==.
// Its licence is that of MIT; the page carries the notice.
var thirdParty = map[string]string{
	"uplot/uPlot.iife.min.js": "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f",
	"uplot/uPlot.min.css":     "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
}

// Page returns the page, in HTML, and the Content-Security-Policy that it is to be
// served with: it runs its own program and styles, and talks to its own daemon only.
func Page() (html, policy string) { return build() }

var build = sync.OnceValues(func() (html, policy string) {
	styles, program := "", "/*!\n"+read("uplot/LICENSE")+"*/\n"
	for _, name := range sheets {
		styles += read(name)
	}
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
