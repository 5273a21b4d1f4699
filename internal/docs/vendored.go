package docs

import (
	"embed"
	"io/fs"
	"path"
	"strings"
)

//go:generate go run ./vendored vendored

// vendored contains the files of other projects that the pages load. Their names
// contain their versions.
//
//go:embed vendored/*.gz vendored/*.woff2 vendored/*.txt
var vendored embed.FS

// addVendored adds the files of other projects: scalar-1.2.3.gen.js.gz becomes
// scalar-1.2.3.js.
func (s *site) addVendored() error {
	files, err := fs.ReadDir(vendored, "vendored")
	if err != nil {
		return err
	}
	for _, e := range files {
		text, err := vendored.ReadFile("vendored/" + e.Name())
		if err != nil {
			return err
		}
		name, packed := strings.CutSuffix(strings.Replace(e.Name(), ".gen.", ".", 1), ".gz")
		f := newFile(kinds[path.Ext(name)], text)
		f.packed, f.immutable = packed, true
		s.files[root+"/assets/"+name] = f
	}
	return nil
}
