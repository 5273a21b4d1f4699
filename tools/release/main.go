// Command release builds the parts of a release that need more than a compiler
// and tar. The script build calls it.
//
//	release env FLAGS           prints the file of variables that the package configures the service with, from docs/flags.md
//	release sbom BINARY VERSION prints the bill of materials of a program, as CycloneDX JSON
//	release roots               prints the certificates of the authorities that Mozilla trusts, as PEM
//	release deb CONFIG PACKAGE  makes a Debian package of what the configuration of nfpm names
//
// The same input gives the same output, on any machine.
package main

import (
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/goreleaser/nfpm/v2"
	"github.com/goreleaser/nfpm/v2/deb"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(args []string, stdout io.Writer) error {
	switch {
	case len(args) == 2 && args[0] == "env":
		return variables(stdout, args[1])
	case len(args) == 3 && args[0] == "sbom":
		return materials(stdout, args[1], args[2])
	case len(args) == 1 && args[0] == "roots":
		return roots(stdout)
	case len(args) == 3 && args[0] == "deb":
		return pack(args[1], args[2])
	}
	return errors.New("use: release env FLAGS | sbom BINARY VERSION | roots | deb CONFIG PACKAGE")
}

// roots omits authorities that are trusted only with constraints, because a
// file of certificates can't express those.
func roots(w io.Writer) error {
	for root := range bundle.Roots() {
		if root.Constraint != nil {
			continue
		}
		if err := pem.Encode(w, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}); err != nil {
			return err
		}
	}
	return nil
}

// pack uses nfpm as a library: the command supports many more formats, with
// their dependencies.
func pack(config, file string) error {
	parsed, err := nfpm.ParseFileWithEnvMapping(config, os.Getenv)
	if err != nil {
		return err
	}
	info, err := parsed.Get("deb")
	if err != nil {
		return err
	}
	if err := nfpm.PrepareForPackager(info, "deb"); err != nil {
		return err
	}
	out, err := os.Create(file)
	if err != nil {
		return err
	}
	err = deb.Default.Package(info, out)
	return errors.Join(err, out.Close())
}
