package docs

import (
	"bytes"
	"html/template"
	"slices"

	"github.com/alecthomas/chroma/v2"
	"github.com/alecthomas/chroma/v2/formatters/html"
	"github.com/alecthomas/chroma/v2/lexers"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/renderer"
	"github.com/yuin/goldmark/util"
)

// tabNames are the languages that are offered as tabs.
var tabNames = map[string]string{
	"sh": "curl", "bash": "curl", "go": "Go", "ts": "TypeScript", "typescript": "TypeScript",
}

var formatter = html.New(html.WithClasses(true), html.PreventSurroundingPre(true))

// highlight returns code as HTML. The style sheet has the colors.
func highlight(language, code string) (template.HTML, error) {
	lexer := lexers.Get(language)
	if language == "" || lexer == nil {
		lexer = lexers.Fallback
	}
	tokens, err := chroma.Coalesce(lexer).Tokenise(nil, code)
	if err != nil {
		return "", err
	}
	var out bytes.Buffer
	out.WriteString(`<pre tabindex="0"><code>`) // wide code scrolls, also by keyboard
	if err := formatter.Format(&out, chroma.MustNewStyle("none", nil), tokens); err != nil {
		return "", err
	}
	out.WriteString("</code></pre>\n")
	return template.HTML(out.String()), nil //nolint:gosec // the formatter escapes the code
}

// tabs is a node of consecutive blocks of code that do the same in different
// languages. Without JavaScript, all are shown.
type tabs struct{ ast.BaseBlock }

var kindTabs = ast.NewNodeKind("Tabs")

// Kind implements ast.Node.
func (*tabs) Kind() ast.NodeKind { return kindTabs }

// Dump implements ast.Node.
func (n *tabs) Dump(source []byte, level int) { ast.DumpHelper(n, source, level, nil, nil) }

// groupCode moves consecutive blocks of code in different languages to tabs.
func groupCode(parent ast.Node, source []byte) {
	var run []ast.Node
	var names []string
	flush := func() {
		if len(run) > 1 {
			group := &tabs{}
			parent.InsertBefore(parent, run[0], group)
			for _, n := range run {
				group.AppendChild(group, n)
			}
		}
		run, names = nil, nil
	}
	for n := parent.FirstChild(); n != nil; {
		next := n.NextSibling()
		name := ""
		if block, ok := n.(*ast.FencedCodeBlock); ok {
			name = tabNames[string(block.Language(source))]
		}
		if name == "" || slices.Contains(names, name) {
			flush()
		}
		if name != "" {
			run, names = append(run, n), append(names, name)
		}
		n = next
	}
	flush()
}

// codeBlocks renders code with colors and tabs.
type codeBlocks struct{}

// RegisterFuncs implements renderer.NodeRenderer.
func (codeBlocks) RegisterFuncs(r renderer.NodeRendererFuncRegisterer) {
	r.Register(kindTabs, func(w util.BufWriter, _ []byte, _ ast.Node, entering bool) (ast.WalkStatus, error) {
		if entering {
			_, _ = w.WriteString(`<div class="tabs">` + "\n")
		} else {
			_, _ = w.WriteString("</div>\n")
		}
		return ast.WalkContinue, nil
	})
	r.Register(ast.KindFencedCodeBlock, renderCode)
	r.Register(ast.KindCodeBlock, renderCode)
}

func renderCode(w util.BufWriter, source []byte, n ast.Node, entering bool) (ast.WalkStatus, error) {
	if !entering {
		return ast.WalkContinue, nil
	}
	language := ""
	if block, ok := n.(*ast.FencedCodeBlock); ok {
		language = string(block.Language(source))
	}
	text, err := highlight(language, string(n.Lines().Value(source)))
	if err != nil {
		return ast.WalkStop, err
	}
	if n.Parent().Kind() == kindTabs {
		_, _ = w.WriteString(`<div class="tab"><p class="language">` + tabNames[language] + "</p>\n" + string(text) + "</div>\n")
	} else {
		_, _ = w.WriteString(`<div class="code">` + string(text) + "</div>\n")
	}
	return ast.WalkSkipChildren, nil
}
