package main

import (
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
)

// configured are the variables that the package sets itself, so that the
// service finds its data.
var configured = map[string]string{
	"CARDMINT_DATABASE_URL": "sqlite:/var/lib/cardmint/cardmint.db",
	"CARDMINT_KEYS":         "/var/lib/cardmint/cardmint.keys",
}

const preface = `# The configuration of cardmint.service, and of the commands of cardmint that an operator runs.
# What is commented out shows the default. 'cardmint serve --help' says more. Then: systemctl restart cardmint
# Passwords do not belong here but in files that only the user cardmint can read.
`

// A row of the page is | flag | variable | default | description |.
// Descriptions may contain links.
var (
	row  = regexp.MustCompile("(?m)^\\| `--[^`]+` \\| `(CARDMINT_[A-Z_]+)` \\|([^|]*)\\|(.*)\\|$")
	link = regexp.MustCompile(`\[([^\]]+)\]\([^)]*\)`)
)

// variables prints every variable on the page that lists the flags of serve.
func variables(w io.Writer, page string) error {
	text, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	rows := row.FindAllStringSubmatch(string(text), -1)
	if want := strings.Count(string(text), "\n| `--"); len(rows) != want || want == 0 {
		return fmt.Errorf("%s: %d of %d rows can be read", page, len(rows), want)
	}
	fmt.Fprint(w, preface)
	for _, r := range rows {
		name, value, about := r[1], plain(r[2]), plain(r[3])
		switch value {
		case "on":
			value = "true"
		case "off":
			value = "false"
		}
		if about != "" {
			about = "# " + about + "\n"
		}
		comment := "#"
		if set, ok := configured[name]; ok {
			comment, value = "", set
		}
		fmt.Fprintf(w, "\n%s%s%s=%s\n", about, comment, name, value)
	}
	return nil
}

func plain(cell string) string {
	return strings.TrimSpace(strings.ReplaceAll(link.ReplaceAllString(cell, "$1"), "`", ""))
}
