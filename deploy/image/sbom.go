package main

import (
	"bufio"
	"cmp"
	"compress/gzip"
	"debug/buildinfo"
	"fmt"
	"io"
	"net/textproto"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/CycloneDX/cyclonedx-go"
	"github.com/google/licenseclassifier/v2/assets"
)

// part is a package of the image. Its size is that of its files, 0 of what is linked into
// the program.
type part struct {
	kind, name, version, licences, purl string
	size                                int64
}

// list writes what is in the image, for programs and for people.
func list(tree, version string, at time.Time) {
	parts := append(fileParts(tree), programParts(tree+"/program", version)...)
	bom := cyclonedx.NewBOM()
	bom.Metadata = &cyclonedx.Metadata{Timestamp: at.Format(time.RFC3339), Component: &cyclonedx.Component{Type: cyclonedx.ComponentTypeContainer, Name: "overlapd", Version: version}}
	bom.Components = &[]cyclonedx.Component{}
	text := must(os.Create(filepath.Join(tree, "packages.txt")))
	table := tabwriter.NewWriter(text, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "KIND\tPACKAGE\tVERSION\tBYTES\tLICENCES")
	for _, p := range parts {
		fmt.Fprintf(table, "%s\t%s\t%s\t%d\t%s\n", p.kind, p.name, p.version, p.size, p.licences)
		licences := cyclonedx.Licenses{{License: &cyclonedx.License{Name: p.licences}}}
		*bom.Components = append(*bom.Components, cyclonedx.Component{BOMRef: p.purl, Type: cyclonedx.ComponentTypeLibrary, Name: p.name, Version: p.version, PackageURL: p.purl, Licenses: &licences})
	}
	must0(table.Flush())
	sbom := must(os.Create(filepath.Join(tree, "sbom.cdx.json")))
	must0(cyclonedx.NewBOMEncoder(sbom, cyclonedx.BOMFileFormatJSON).SetPretty(true).EncodeVersion(bom, cyclonedx.SpecVersion1_6))
	fmt.Printf("packages     %d, in %s and sbom.cdx.json\n", len(parts), text.Name())
}

// fileParts are Debian's packages and what scripts/image-tree has taken from elsewhere: both
// have a header of fields, and a list of files.
func fileParts(tree string) (parts []part) {
	for _, path := range append(must(filepath.Glob(tree+"/*/var/lib/dpkg/status.d/*.md5sums")), must(filepath.Glob(tree+"/*/usr/share/doc/*/files"))...) {
		header, debian := strings.CutSuffix(path, ".md5sums")
		if !debian {
			header = filepath.Join(filepath.Dir(path), "METADATA")
		}
		field, err := textproto.NewReader(bufio.NewReader(must(os.Open(header)))).ReadMIMEHeader()
		if err != io.EOF { // it may end with the header
			must0(err)
		}
		root := filepath.Join(tree, strings.Split(must(filepath.Rel(tree, path)), "/")[0])
		p := part{kind: "other", name: field.Get("Name"), version: field.Get("Version"), licences: cmp.Or(field.Get("License-Expression"), field.Get("License"))}
		p.purl = cmp.Or(field.Get("Purl"), "pkg:pypi/"+p.name+"@"+p.version)
		if debian {
			p.kind, p.name = "debian", field.Get("Package")
			p.licences = licencesOf(must(os.ReadFile(filepath.Join(root, "usr/share/doc", p.name, "copyright"))))
			p.purl = fmt.Sprintf("pkg:deb/debian/%s@%s?arch=%s", p.name, p.version, field.Get("Architecture"))
		}
		for _, file := range strings.Fields(string(must(os.ReadFile(path)))) {
			if strings.Contains(file, "/") { // else a hash
				p.size += must(os.Stat(filepath.Join(root, file))).Size()
			}
		}
		parts = append(parts, p)
	}
	return parts
}

// programParts are the program, Go, and the modules that are linked, with their licences
// from the file that scripts/stage made of them.
func programParts(layer, version string) []part {
	program := layer + "/usr/bin/overlapd"
	info := must(buildinfo.ReadFile(program))
	texts := map[string]string{} // by module
	text := must(io.ReadAll(must(gzip.NewReader(must(os.Open(layer + "/usr/share/doc/overlapd/third-party-licenses.gz"))))))
	for _, notice := range strings.Split(string(text), "==== ")[1:] {
		title, body, _ := strings.Cut(notice, "\n")
		texts[strings.TrimSuffix(strings.Fields(title)[0], ":")] += body
	}
	release, _, _ := strings.Cut(info.GoVersion, " ") // what follows are experiments
	parts := []part{
		{"program", "overlapd", version, "Apache-2.0", "pkg:golang/" + info.Main.Path + "@" + version, must(os.Stat(program)).Size()},
		{"go", "stdlib", release[2:], "BSD-3-Clause", "pkg:golang/stdlib@" + release[2:], 0},
	}
	for _, m := range info.Deps {
		parts = append(parts, part{"go", m.Path, m.Version, licencesOf([]byte(texts[m.Path])), "pkg:golang/" + m.Path + "@" + m.Version, 0})
	}
	return parts
}

var (
	classifier = must(assets.DefaultClassifier())
	common     = regexp.MustCompile(`/usr/share/common-licenses/([A-Z][A-Za-z0-9.-]*[A-Za-z0-9])`)
)

// licencesOf returns the licences whose texts are in a text, or that it names as Debian does.
func licencesOf(text []byte) string {
	var names []string
	for _, m := range classifier.Match(text).Matches {
		if m.MatchType == "License" {
			names = append(names, m.Name)
		}
	}
	for _, m := range common.FindAllSubmatch(text, -1) {
		names = append(names, string(m[1]))
	}
	slices.Sort(names)
	return cmp.Or(strings.Join(slices.Compact(names), ", "), "unknown")
}
