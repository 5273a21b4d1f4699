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
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/renderer"
	"github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"

	"github.com/cardmint/cardmint"
)

// render renders a Markdown file. Its title is the first heading. Links between
// files become links between pages, code that is an operationId becomes a link to
// the reference, and drawings are inlined, so that they use the page's colors.
func render(source []byte, operations map[string]string) (page, error) {
	md := goldmark.New(
		goldmark.WithExtensions(extension.Table),
		goldmark.WithParserOptions(parser.WithAutoHeadingID()),
		goldmark.WithRendererOptions(renderer.WithNodeRenderers(util.Prioritized(drawings{}, 100))),
	)
	doc := md.Parser().Parse(text.NewReader(source),
		parser.WithContext(parser.NewContext(parser.WithIDs(&anchors{map[string]bool{}}))))
	var p page
	var named []ast.Node // operations; the walk would lose its way if they were replaced during it
	err := ast.Walk(doc, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		switch n := n.(type) {
		case *ast.Heading:
			if p.Title == "" {
				p.Title = words(n, source)
			}
		case *ast.Link:
			n.Destination = []byte(address(string(n.Destination)))
		case *ast.CodeSpan:
			if operations[words(n, source)] != "" && n.Parent().Kind() != ast.KindLink {
				named = append(named, n)
			}
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
	var out bytes.Buffer
	if err := md.Renderer().Render(&out, source, doc); err != nil {
		return p, err
	}
	// Wide elements scroll on narrow screens, also by keyboard.
	html := strings.NewReplacer("<pre>", `<pre tabindex="0">`, "<table>", `<div class="table" tabindex="0"><table>`,
		"</table>", "</table></div>").Replace(out.String())
	p.Content = template.HTML(html) //nolint:gosec // the guides are our own
	return p, nil
}

// words returns the text of a node.
func words(n ast.Node, source []byte) string {
	var b strings.Builder
	for child := n.FirstChild(); child != nil; child = child.NextSibling() {
		if t, ok := child.(*ast.Text); ok {
			b.Write(t.Segment.Value(source))
		} else {
			b.WriteString(words(child, source))
		}
	}
	return b.String()
}

// address converts a link between files to a link between pages.
func address(to string) string {
	u, err := url.Parse(to)
	if err != nil || u.IsAbs() || path.Ext(u.Path) != ".md" && path.Ext(u.Path) != ".yaml" {
		return to
	}
	switch name := strings.ToLower(strings.TrimSuffix(path.Base(u.Path), path.Ext(u.Path))); name {
	case "index":
		u.Path = root
	case "openapi":
		u.Path = reference
	default:
		u.Path = root + "/" + name
	}
	return u.String()
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
