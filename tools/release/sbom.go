package main

import (
	"debug/buildinfo"
	"io"
	"runtime/debug"
	"strings"

	cyclonedx "github.com/CycloneDX/cyclonedx-go"
)

// materials lists the modules that are linked into a program, according to its
// build information: each with its version and its checksum as in go.sum, and
// the standard library. It contains no times and random numbers, so that it is
// reproducible.
func materials(w io.Writer, program, version string) error {
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return err
	}
	main := component(cyclonedx.ComponentTypeApplication, info.Main.Path, version)
	main.Licenses = &cyclonedx.Licenses{{License: &cyclonedx.License{ID: "Apache-2.0"}}}
	var settings []cyclonedx.Property
	for _, s := range info.Settings {
		settings = append(settings, cyclonedx.Property{Name: "go:build:" + s.Key, Value: s.Value})
	}
	main.Properties = &settings
	components := []cyclonedx.Component{
		component(cyclonedx.ComponentTypeLibrary, "std", strings.TrimPrefix(info.GoVersion, "go"))}
	for _, m := range info.Deps {
		components = append(components, library(m, version))
	}
	var refs []string
	for _, c := range components {
		refs = append(refs, c.BOMRef)
	}
	bom := cyclonedx.NewBOM()
	bom.Metadata = &cyclonedx.Metadata{Component: &main}
	bom.Components = &components
	bom.Dependencies = &[]cyclonedx.Dependency{{Ref: main.BOMRef, Dependencies: &refs}}
	return cyclonedx.NewBOMEncoder(w, cyclonedx.BOMFileFormatJSON).SetPretty(true).Encode(bom)
}

// library describes a module. A module that is replaced by a directory of this
// repository has the program's version.
func library(m *debug.Module, version string) cyclonedx.Component {
	if r := m.Replace; r != nil && strings.HasPrefix(r.Path, ".") {
		return component(cyclonedx.ComponentTypeLibrary, m.Path, version)
	} else if r != nil {
		m = r
	}
	c := component(cyclonedx.ComponentTypeLibrary, m.Path, m.Version)
	c.Properties = &[]cyclonedx.Property{{Name: "go:sum", Value: m.Sum}}
	return c
}

func component(kind cyclonedx.ComponentType, path, version string) cyclonedx.Component {
	url := "pkg:golang/" + path + "@" + version
	return cyclonedx.Component{Type: kind, BOMRef: url, Name: path, Version: version, PackageURL: url}
}
