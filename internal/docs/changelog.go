package docs

import "strings"

// readers are those that an entry of the changelog can be for, in the order in
// which its page has them: first who calls the service.
var readers = []struct{ mark, title string }{
	{"**API:** ", "For all who call the service"},
	{"**Clients:** ", "For users of the clients, and developers of receivers"},
	{"**Operators:** ", "For operators"},
}

// byReader sorts the entries of each version in the changelog by their readers,
// below a heading for each. An entry begins with the mark of its reader, or is
// for operators.
func byReader(changelog string) string {
	var out strings.Builder
	entries := make([]string, len(readers)) // of one version
	flush := func() {
		for i, r := range readers {
			if entries[i] != "" {
				out.WriteString("\n### " + r.title + "\n\n" + entries[i])
			}
			entries[i] = ""
		}
	}
	begun, reader := false, 0
	for line := range strings.Lines(changelog) {
		switch {
		case strings.HasPrefix(line, "## "):
			flush()
			begun = true
			out.WriteString("\n" + line)
		case !begun:
			out.WriteString(line)
		case strings.HasPrefix(line, "- "):
			text := ""
			reader, text = readerOf(line[2:])
			entries[reader] += "- " + text
		case strings.TrimSpace(line) != "":
			entries[reader] += line
		}
	}
	flush()
	return out.String()
}

// readerOf returns the index of the reader whom an entry is for, and the entry
// without the mark.
func readerOf(entry string) (reader int, text string) {
	for i, r := range readers {
		if text, marked := strings.CutPrefix(entry, r.mark); marked {
			return i, text
		}
	}
	return len(readers) - 1, entry
}
