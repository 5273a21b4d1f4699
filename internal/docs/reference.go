package docs

import (
	"github.com/getkin/kin-openapi/openapi3"
	"github.com/swaggest/swgui/v5/static"

	"github.com/cardmint/cardmint/openapi"
)

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

// operationPaths returns where on the reference page each operation is, by its id.
func operationPaths() (map[string]string, error) {
	doc, err := openapi3.NewLoader().LoadFromData(openapi.YAML)
	if err != nil {
		return nil, err
	}
	paths := map[string]string{}
	for _, item := range doc.Paths.Map() {
		for _, operation := range item.Operations() {
			paths[operation.OperationID] = reference + "#/" + operation.Tags[0] + "/" + operation.OperationID
		}
	}
	return paths, nil
}
