package docs

import (
	"bytes"
	"cmp"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/text"

	"github.com/cardmint/cardmint"
)

// addPlain adds what programs read: each page as Markdown, at its path and
// ".md", the drawings, and /llms.txt, a list of these files
// (https://llmstxt.org). files maps the other files that the pages link to.
func (s *site) addPlain(pages []page, files map[string]string) error {
	all := slices.Concat(guides, operatorGuides)
	addresses := maps.Clone(files)
	addresses["openapi/openapi.yaml"] = "/openapi.yaml"
	for _, g := range all {
		addresses[g.file] = g.path() + ".md"
	}
	drawings, err := fs.Glob(cardmint.Docs, "docs/guides/*.svg")
	if err != nil {
		return err
	}
	for _, file := range drawings {
		drawing, err := cardmint.Docs.ReadFile(file)
		if err != nil {
			return err
		}
		addresses[file] = root + "/" + path.Base(file)
		s.files[addresses[file]] = newFile(kinds[".svg"], drawing)
	}
	overview, err := cardmint.Docs.ReadFile("docs/guides/index.md")
	if err != nil {
		return err
	}
	explained := map[string]string{} // by the overview
	for _, item := range listItem.FindAllSubmatch(overview, -1) {
		explained[path.Join("docs/guides", string(item[1]))] = string(item[2])
	}
	var list [2]strings.Builder // for integrators and for operators
	summary := ""
	for i, g := range all {
		source, err := cardmint.Docs.ReadFile(g.file)
		if err != nil {
			return err
		}
		s.files[addresses[g.file]] = newFile("text/markdown; charset=utf-8", relink(g.file, source, addresses))
		about := firstParagraph(source)
		if g.slug == "" {
			summary = about
		}
		part := &list[0]
		if i >= len(guides) {
			part = &list[1]
		}
		fmt.Fprintf(part, "- [%s](%s): %s\n", pages[i].Title, addresses[g.file],
			cmp.Or(explained[g.file], firstSentence(about)))
	}
	s.files["/llms.txt"] = newFile("text/plain; charset=utf-8", fmt.Appendf(nil, llms, summary, list[0].String(), list[1].String()))
	return nil
}

// llms is the format of /llms.txt, of the summary, the guides and the pages for
// operators.
const llms = `# cardmint

> %s

Requests need the header "Authorization: Bearer" and a token of an account. Amounts of coins are exact decimal numbers in strings. Errors are
problem documents (RFC 9457): decide by their "code".

## Guides

%s
## API

- [OpenAPI 3.1](/openapi-3.1.yaml): every operation, with code samples, and a webhook and a schema per type of event
- [OpenAPI 3.0](/openapi.yaml): the same operations, for tools that do not read 3.1; also as [JSON](/openapi.json)

## Optional

For operators, who run a service of their own.

%s`

// listItem is a link and its explanation, as the overview lists them.
var listItem = regexp.MustCompile(`(?m)^- \[[^\]]*\]\(([^)\s]+)\): (.*?)\.?$`)

// target is the target of a Markdown link or image.
var target = regexp.MustCompile(`\]\(([^)\s]+)\)`)

// relink makes the links of a Markdown file lead to the files that the service
// serves. Code stays as it is.
func relink(file string, source []byte, addresses map[string]string) []byte {
	code := false
	lines := bytes.Split(source, []byte("\n"))
	for i, line := range lines {
		if bytes.HasPrefix(bytes.TrimSpace(line), []byte("```")) {
			code = !code
		}
		if !code {
			lines[i] = target.ReplaceAllFunc(line, func(link []byte) []byte {
				return []byte("](" + address(file, string(link[2:len(link)-1]), addresses) + ")")
			})
		}
	}
	return bytes.Join(lines, []byte("\n"))
}

// firstParagraph returns the text of a Markdown file's first paragraph.
func firstParagraph(source []byte) string {
	doc := markdown().Parser().Parse(text.NewReader(source))
	for n := doc.FirstChild(); n != nil; n = n.NextSibling() {
		if n.Kind() == ast.KindParagraph {
			return strings.Join(strings.Fields(words(n, source)), " ")
		}
	}
	return ""
}

var sentence = regexp.MustCompile(`^(.*?)(?:[.:]?$|\. )`)

func firstSentence(paragraph string) string {
	if found := sentence.FindStringSubmatch(paragraph); found != nil {
		return found[1]
	}
	return paragraph
}
