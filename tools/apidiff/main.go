// Command apidiff compares the API of package client with its last release. It
// fails if a program that was written for the release would no longer compile.
//
//	go run . ../../client          # compare with client/api.txt
//	go run . -write ../../client   # with a release: write what is exported now
//
// The file is the package's source without comments and function bodies:
// readable text that is type-checked to get the released API.
package main

import (
	"flag"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/exp/apidiff"
)

// apiFile contains the released API, in the package's directory.
const apiFile = "api.txt"

func main() {
	log.SetFlags(0)
	write := flag.Bool("write", false, "write what is exported now")
	flag.Parse()
	dir := flag.Arg(0)
	if dir == "" {
		log.Fatal("usage: apidiff [-write] DIRECTORY")
	}
	now, err := load(dir)
	if err != nil {
		log.Fatal(err)
	}
	file := filepath.Join(dir, apiFile)
	if *write {
		text, err := stub(now)
		if err == nil {
			err = os.WriteFile(file, text, 0o644)
		}
		if err != nil {
			log.Fatal(err)
		}
		return
	}
	released, err := os.ReadFile(file)
	if err != nil {
		log.Fatal(err)
	}
	broken, err := compare(released, now)
	if err != nil {
		log.Fatal(err)
	}
	if broken != "" {
		log.Fatalf("the released API of %s is broken:\n%s", now.PkgPath, broken)
	}
}

// compare returns the incompatible changes to the released API.
func compare(released []byte, now *loaded) (string, error) {
	before, err := now.check(released)
	if err != nil {
		return "", fmt.Errorf("read the released API: %w", err)
	}
	if before.Scope().Len() == 0 {
		return "", fmt.Errorf("the released API is empty")
	}
	var b strings.Builder
	for _, change := range apidiff.Changes(before, now.Types).Changes {
		if !change.Compatible {
			fmt.Fprintln(&b, "-", change.Message)
		}
	}
	return b.String(), nil
}
