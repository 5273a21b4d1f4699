// Picture draws what the README shows: the way of a payment, and what the
// service is built with, which it reads from the repository.
//
//	go run ./tools/picture
package main

import (
	"fmt"
	"html"
	"log"
	"os"
	"regexp"
	"strings"
)

const head = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%[1]d" height="%[2]d" role="img" aria-labelledby="title"` +
	` font-family="system-ui, sans-serif" font-size="14">
<title id="title">%s</title>
<style>
.box { fill: #f4f6f6; stroke: #5c6967 } .ours { fill: #e0f0ea; stroke: #1b7a5a } .text { fill: #1b2423; text-anchor: middle }
.line { fill: none; stroke: #5c6967; stroke-width: 1.5 } .tip { fill: #5c6967 } .note { fill: #4a5856; font-size: 12px; text-anchor: middle }
@media (prefers-color-scheme: dark) {
.box { fill: #24302e; stroke: #93a19f } .ours { fill: #17382d; stroke: #4fc29a } .text { fill: #edf2f1 } .line { stroke: #93a19f } .tip { fill: #93a19f }
.note { fill: #b9c4c2 } }
</style>
`

// drawing is an SVG under construction. All lengths are in its own units.
type drawing struct{ strings.Builder }

const boxWidth, boxHeight = 124, 40

// box draws a part, with the middle of its upper edge at x, y. Ours are told
// from others'.
func (d *drawing) box(x, y int, ours bool, text string) {
	class := "box"
	if ours {
		class += " ours"
	}
	fmt.Fprintf(d, `<rect class="%s" x="%d" y="%d" width="%d" height="%d" rx="7"/>`, class, x-boxWidth/2, y, boxWidth,
		boxHeight)
	fmt.Fprintf(d, `<text class="text" x="%d" y="%d">%s</text>`+"\n", x, y+25, html.EscapeString(text))
}

// arrow draws a line along points, and its tip at the last one, which is
// reached horizontally or vertically.
func (d *drawing) arrow(points ...[2]int) {
	path := ""
	for i, p := range points {
		path += fmt.Sprintf("%c%d %d", "ML"[min(i, 1)], p[0], p[1])
	}
	end, from := points[len(points)-1], points[len(points)-2]
	turn := map[[2]int]int{{1, 0}: 0, {0, 1}: 90, {-1, 0}: 180,
		{0, -1}: 270}[[2]int{sign(end[0] - from[0]), sign(end[1] - from[1])}]
	fmt.Fprintf(d,
		`<path class="line" d="%s"/><path class="tip" d="M0 0l-9-5v10z" transform="translate(%d %d) rotate(%d)"/>`+"\n",
		path, end[0], end[1], turn)
}

func sign(n int) int { return min(1, max(-1, n)) }

// note writes beside an arrow.
func (d *drawing) note(x, y int, text string) {
	fmt.Fprintf(d, `<text class="note" x="%d" y="%d">%s</text>`+"\n", x, y, html.EscapeString(text))
}

// way draws how an order becomes a card.
func way() string {
	var d drawing
	fmt.Fprintf(&d, head, 860, 262,
		"A shop orders a card and shows the amount and the address to the payer, whose payment the watcher finds on "+
			"the blockchain. The issuer has a supplier make the card, and the shop learns of it by a webhook.")
	const shop, api, watcher, issuer, top, bottom = 82, 330, 560, 780, 40, 190
	d.box(shop, top, false, "your shop")
	d.box(api, top, true, "API")
	d.box(watcher, top, true, "webhooks")
	d.box(issuer, top, false, "supplier")
	d.box(shop, bottom, false, "payer")
	d.box(api, bottom, false, "blockchain")
	d.box(watcher, bottom, true, "watcher")
	d.box(issuer, bottom, true, "issuer")
	const half, middle = boxWidth / 2, boxHeight / 2
	d.arrow([2]int{shop + half, top + 12}, [2]int{api - half, top + 12})
	d.note((shop+api)/2, top+7, "1 POST /api/cards")
	d.arrow([2]int{api - half, top + 30}, [2]int{shop + half, top + 30})
	d.note((shop+api)/2, top+46, "2 amount, address")
	d.arrow([2]int{shop, top + boxHeight}, [2]int{shop, bottom})
	d.note(shop+50, (top+bottom+boxHeight)/2+4, "3 shows them")
	d.arrow([2]int{shop + half, bottom + middle}, [2]int{api - half, bottom + middle})
	d.note((shop+api)/2, bottom+middle-8, "4 pays")
	d.arrow([2]int{api + half, bottom + middle}, [2]int{watcher - half, bottom + middle})
	d.note((api+watcher)/2, bottom+middle-8, "5 confirmed")
	d.arrow([2]int{watcher + half, bottom + middle}, [2]int{issuer - half, bottom + middle})
	d.note((watcher+issuer)/2, bottom+middle-8, "6 once")
	d.arrow([2]int{issuer - 16, bottom}, [2]int{issuer - 16, top + boxHeight})
	d.note(issuer-68, 118, "7 makes a card")
	d.arrow([2]int{issuer + 16, top + boxHeight}, [2]int{issuer + 16, bottom})
	d.note(issuer+50, (top+bottom+boxHeight)/2+4, "number")
	d.arrow([2]int{issuer - 40, bottom}, [2]int{issuer - 40, 150}, [2]int{watcher, 150}, [2]int{watcher, top + boxHeight})
	d.note(watcher+90, 167, "8 generated")
	d.arrow([2]int{watcher, top}, [2]int{watcher, 16}, [2]int{shop, 16}, [2]int{shop, top})
	d.note((shop+watcher)/2, 11, "9 card.generated, signed; or the shop asks")
	d.WriteString("</svg>\n")
	return d.String()
}

// badges draws what the repository says about itself.
func badges() string {
	facts := [][2]string{
		{"OpenAPI", find("openapi/openapi.yaml", `(?m)^openapi: (\S+)`)},
		{"contract", find("openapi/openapi.yaml", `(?m)^  version: (\S+)`)},
		{"service", "Go " + find("go.mod", `(?m)^go (\d+\.\d+)`)},
		{"client", "Go " + find("client/go.mod", `(?m)^go (\d+\.\d+)`) + " and later"},
		{"TypeScript client", "Node " + find("client/typescript/package.json", `"node": "[>=^]*(\d+)`) + " and later"},
		{"license", find("LICENSE", `(Apache) License`) + " " + find("LICENSE", `Version (\S+),`)},
	}
	var d drawing
	width := 0
	const letter, gap = 7, 7
	for _, f := range facts {
		width += (len(f[0])+len(f[1])+3)*letter + gap
	}
	fmt.Fprintf(&d, head, width, 24, "What the service is built with")
	x := 0
	for _, f := range facts {
		name, value := (len(f[0])+1)*letter, (len(f[1])+2)*letter
		fmt.Fprintf(&d,
			`<rect class="box" x="%d.5" y="0.5" width="%d" height="22" rx="5"/><text class="text" font-size="12" x="%d" y="16">%s</text>`, x, name+value-1, x+name/2+2, html.EscapeString(f[0]))
		fmt.Fprintf(&d,
			`<rect class="box ours" x="%d.5" y="0.5" width="%d" height="22" rx="5"/><text class="text" font-size="12" x="%d" y="16">%s</text>`+"\n", x+name, value-1, x+name+value/2, html.EscapeString(f[1]))
		x += name + value + gap
	}
	d.WriteString("</svg>\n")
	return d.String()
}

// find returns what the first group of a pattern matches in a file.
func find(path, pattern string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		log.Fatal(err)
	}
	match := regexp.MustCompile(pattern).FindStringSubmatch(string(text))
	if match == nil {
		log.Fatalf("%s has nothing like %s", path, pattern)
	}
	return match[1]
}

func main() {
	log.SetFlags(0)
	for path, text := range map[string]string{"docs/way.gen.svg": way(), "docs/badges.gen.svg": badges()} {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			log.Fatal(err)
		}
	}
}
