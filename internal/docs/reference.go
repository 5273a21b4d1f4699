package docs

import "github.com/swaggest/swgui/v5/static"

// addSwaggerUI adds the renderer of the reference page.
func (s *site) addSwaggerUI() error {
	for name, kind := range map[string]string{"swagger-ui-bundle.js": kinds[".js"], "swagger-ui.css": kinds[".css"]} {
		packed, err := static.FS.ReadFile(name + ".gz")
		if err != nil {
			return err
		}
		f := newFile(kind, packed)
		f.packed = true
		s.files[root+"/assets/"+name] = f
	}
	return nil
}

// operationPaths returns the link to each operation on the reference page.
func operationPaths(tags map[string]string) map[string]string {
	paths := map[string]string{}
	for id, tag := range tags {
		paths[id] = reference + "#/" + tag + "/" + id
	}
	return paths
}
