package docs

import (
	"bytes"
	"fmt"
	"html/template"
	"net/url"
	"path"
	"strings"
	"unicode"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	tables "github.com/yuin/goldmark/extension/ast"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/renderer"
	"github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"

	"github.com/cardmint/cardmint"
)

// repository is where the files are that are no pages.
const repository = "https://github.com/cardmint/cardmint/blob/main/"

// heading is an entry of a page's table of contents.
type heading struct {
	Level     int
	ID, Title string
	text      strings.Builder // of the section, for the search
}

// render renders a Markdown file. Its title is the first heading. Links between
// files become links between pages: addresses maps files to pages. Code that is
// an operationId becomes a link to the reference. Drawings are inlined, so that
// they use the page's colors.
func render(file string, source []byte, addresses, operations map[string]string) (page, error) {
	md := markdown()
	doc := md.Parser().Parse(text.NewReader(source),
		parser.WithContext(parser.NewContext(parser.WithIDs(&anchors{map[string]bool{}}))))
	p := page{sections: sections(doc, source)}
	if len(p.sections) > 0 {
		p.Title = p.sections[0].Title
	}
	for _, h := range p.sections {
		if h.Level == 2 || h.Level == 3 {
			p.Contents = append(p.Contents, h)
		}
	}
	var named []ast.Node // operations; the walk would lose its way if they were replaced during it
	err := ast.Walk(doc, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		switch n := n.(type) {
		case *ast.Link:
			n.Destination = []byte(address(file, string(n.Destination), addresses))
		case *ast.CodeSpan:
			if operations[words(n, source)] != "" && n.Parent().Kind() != ast.KindLink {
				named = append(named, n)
			}
		case *tables.Table:
			labelCells(n, source)
		}
		return ast.WalkContinue, nil
	})
	if err != nil {
		return p, err
	}
	for _, n := range named {
		link := ast.NewLink()
		link.Destination = []byte(operations[words(n, source)])
		n.Parent().ReplaceChild(n.Parent(), n, link)
		link.AppendChild(link, n)
	}
	groupCode(doc, source)
	var out bytes.Buffer
	if err := md.Renderer().Render(&out, source, doc); err != nil {
		return p, err
	}
	// Wide tables scroll on narrow screens, also by keyboard.
	html := strings.NewReplacer("<table>", `<div class="table" tabindex="0"><table>`,
		"</table>", "</table></div>").Replace(out.String())
	p.Content = template.HTML(html) //nolint:gosec // the guides are our own
	return p, nil
}

// markdown returns the parser and the renderer of the pages.
func markdown() goldmark.Markdown {
	return goldmark.New(
		goldmark.WithExtensions(extension.Table),
		goldmark.WithParserOptions(parser.WithAutoHeadingID()),
		goldmark.WithRendererOptions(renderer.WithNodeRenderers(
			util.Prioritized(drawings{}, 100), util.Prioritized(codeBlocks{}, 100), util.Prioritized(headings{}, 100))),
	)
}

// sections returns the headings of a document, each with the text below it.
func sections(doc ast.Node, source []byte) []*heading {
	var all []*heading
	for n := doc.FirstChild(); n != nil; n = n.NextSibling() {
		if h, ok := n.(*ast.Heading); ok {
			id, _ := h.AttributeString("id")
			anchor, _ := id.([]byte)
			all = append(all, &heading{Level: h.Level, ID: string(anchor), Title: words(h, source)})
		} else if len(all) > 0 {
			last := all[len(all)-1]
			last.text.WriteString(words(n, source))
		}
	}
	return all
}

// labelCells gives each cell of a table the heading of its column, which narrow
// screens show next to it. The first cell is the heading of its row.
func labelCells(table *tables.Table, source []byte) {
	var labels []string
	for row := table.FirstChild(); row != nil; row = row.NextSibling() {
		i := 0
		for cell := row.FirstChild(); cell != nil; cell = cell.NextSibling() {
			if row.Kind() == tables.KindTableHeader {
				labels = append(labels, words(cell, source))
			} else if i > 0 && i < len(labels) {
				cell.SetAttributeString("data-label", []byte(labels[i]))
			}
			i++
		}
	}
}

// words returns the text of a node.
func words(n ast.Node, source []byte) string {
	var b strings.Builder
	switch n := n.(type) {
	case *ast.Text:
		b.Write(n.Segment.Value(source))
		if n.SoftLineBreak() || n.HardLineBreak() {
			b.WriteByte(' ')
		}
	case *ast.FencedCodeBlock:
		b.Write(n.Lines().Value(source))
	}
	for child := n.FirstChild(); child != nil; child = child.NextSibling() {
		b.WriteString(words(child, source))
	}
	if n.Type() == ast.TypeBlock && n.Kind() != ast.KindHeading && n.Kind() != tables.KindTableCell {
		b.WriteByte('\n')
	}
	if n.Kind() == tables.KindTableCell && n.NextSibling() != nil && n.Parent().Kind() != tables.KindTableHeader {
		b.WriteByte(' ')
	}
	return b.String()
}

// address converts a link between files to a link between pages. Links to files
// that are no pages lead to the repository.
func address(file, to string, addresses map[string]string) string {
	u, err := url.Parse(to)
	if err != nil || u.IsAbs() || u.Path == "" {
		return to
	}
	name := path.Join(path.Dir(file), u.Path)
	if page := addresses[name]; page != "" {
		u.Path = page
		return u.String()
	}
	return repository + name
}

// anchors generates the same heading ids as GitHub, so that links work on both.
type anchors struct{ used map[string]bool }

// Generate implements parser.IDs.
func (a *anchors) Generate(heading []byte, _ ast.NodeKind) []byte {
	name := strings.Map(func(r rune) rune {
		switch {
		case unicode.IsLetter(r), unicode.IsDigit(r), r == '-', r == '_':
			return unicode.ToLower(r)
		case r == ' ':
			return '-'
		}
		return -1
	}, string(heading))
	base := name
	for i := 1; a.used[name]; i++ {
		name = fmt.Sprintf("%s-%d", base, i)
	}
	a.used[name] = true
	return []byte(name)
}

// Put implements parser.IDs.
func (a *anchors) Put(name []byte) { a.used[string(name)] = true }

// drawings inlines the images of the guides.
type drawings struct{}

// RegisterFuncs implements renderer.NodeRenderer.
func (drawings) RegisterFuncs(r renderer.NodeRendererFuncRegisterer) {
	r.Register(ast.KindImage, func(w util.BufWriter, _ []byte, n ast.Node, entering bool) (ast.WalkStatus, error) {
		if entering {
			drawing, err := cardmint.Docs.ReadFile("docs/guides/" + string(n.(*ast.Image).Destination))
			if err != nil {
				return ast.WalkStop, err
			}
			_, err = w.Write(drawing)
			return ast.WalkSkipChildren, err
		}
		return ast.WalkContinue, nil
	})
}

// headings renders headings with a link to themselves.
type headings struct{}

// RegisterFuncs implements renderer.NodeRenderer.
func (headings) RegisterFuncs(r renderer.NodeRendererFuncRegisterer) {
	r.Register(ast.KindHeading, func(w util.BufWriter, source []byte, n ast.Node, entering bool) (ast.WalkStatus, error) {
		h := n.(*ast.Heading)
		value, _ := h.AttributeString("id")
		id, _ := value.([]byte)
		switch {
		case entering:
			_, _ = fmt.Fprintf(w, `<h%d id="%s">`, h.Level, id)
		case h.Level == 1:
			_, _ = w.WriteString("</h1>\n")
		default:
			_, _ = fmt.Fprintf(w, ` <a class="anchor" href="#%s" aria-label="Link to “%s”">#</a></h%d>`+"\n",
				id, template.HTMLEscapeString(words(h, source)), h.Level)
		}
		return ast.WalkContinue, nil
	})
}
