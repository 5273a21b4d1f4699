// Command vendored fetches the script and the typefaces that the pages embed
// from the npm registry: in the pinned versions, and with the pinned checksums
// only. To update one, change its version here and in the files of assets that
// name it; the error names the new checksum.
package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha512"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// module is a package of npm.
type module struct {
	name, version string
	integrity     string            // as npm computes it, in package-lock.json too
	files         map[string]string // where each file goes, by its path in the package
}

var modules = []module{
	{"@scalar/api-reference", "1.72.1", "sha512-XpEJ0rfc/cXbCrR+iC4kK0o/WwX2dTtGQbT049OlPKAHD6IMIFdTeGz2r+M27P2EDWKyUITRm/NzlP8z2pw/Ow==", map[string]string{
		"dist/browser/standalone.js": "scalar-1.72.1.gen.js.gz",
	}},
	{"@fontsource-variable/geist", "5.3.0", "sha512-j0m+vLQuG5XAYoHtGCVu0spvlGreR3EzpECUVzkFmI1mTVnAO38l/NEPDCFgZ177JxzYJCLSmTQibIiYPilGrA==", map[string]string{
		"files/geist-latin-wght-normal.woff2": "geist-5.3.0.gen.woff2",
		"LICENSE":                             "LICENSE-geist.gen.txt",
	}},
	{"@fontsource-variable/geist-mono", "5.3.0", "sha512-vBbuwDEo9AkrqADMXOrlAR3DFcJi4/JxeuU43FoiQERnNwsfXNnvxvReZG02cQKmyk4DZkZdBZX3oTDvy2zBAw==", map[string]string{
		"files/geist-mono-latin-wght-normal.woff2": "geist-mono-5.3.0.gen.woff2",
		"LICENSE": "LICENSE-geist-mono.gen.txt",
	}},
}

func main() {
	log.SetFlags(0)
	if len(os.Args) != 2 {
		log.Fatal("usage: vendored DIRECTORY")
	}
	for _, m := range modules {
		if err := m.fetch(os.Args[1]); err != nil {
			log.Fatalf("%s %s: %v", m.name, m.version, err)
		}
	}
}

// fetch writes the files of a package to a directory.
func (m module) fetch(into string) error {
	dir, err := os.MkdirTemp("", "vendored")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	npm := exec.CommandContext(context.Background(), "npm", "pack", "--silent", "--pack-destination", dir,
		m.name+"@"+m.version)
	npm.Stderr = os.Stderr
	name, err := npm.Output()
	if err != nil {
		return fmt.Errorf("npm pack: %w", err)
	}
	packed, err := os.ReadFile(filepath.Join(dir, strings.TrimSpace(string(name))))
	if err != nil {
		return err
	}
	sum := sha512.Sum512(packed)
	if got := "sha512-" + base64.StdEncoding.EncodeToString(sum[:]); got != m.integrity {
		return fmt.Errorf("its checksum is %s, not %s", got, m.integrity)
	}
	return m.unpack(packed, into)
}

func (m module) unpack(packed []byte, into string) error {
	plain, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return err
	}
	files, found := tar.NewReader(plain), 0
	for {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		name := m.files[strings.TrimPrefix(header.Name, "package/")]
		if name == "" {
			continue
		}
		text, err := io.ReadAll(files)
		if err != nil {
			return err
		}
		if err := write(filepath.Join(into, name), text); err != nil {
			return err
		}
		found++
	}
	if found != len(m.files) {
		return fmt.Errorf("has %d of %d files", found, len(m.files))
	}
	return nil
}

// write writes a file, compressed if its name ends in .gz. It leaves a
// compressed file with the same content alone, because another version of Go
// may compress it to other bytes.
func write(name string, text []byte) error {
	if filepath.Ext(name) != ".gz" {
		return os.WriteFile(name, text, 0o644) //nolint:gosec // a file of the repository
	}
	if old, err := os.Open(name); err == nil {
		defer func() { _ = old.Close() }()
		if plain, err := gzip.NewReader(old); err == nil {
			if content, err := io.ReadAll(plain); err == nil && bytes.Equal(content, text) {
				return nil
			}
		}
	}
	var out bytes.Buffer
	compress, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		return err
	}
	if _, err := compress.Write(text); err != nil {
		return err
	}
	if err := compress.Close(); err != nil {
		return err
	}
	return os.WriteFile(name, out.Bytes(), 0o644) //nolint:gosec // a file of the repository
}
