package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// found is gremlins' report about a package.
type found struct {
	Files []struct {
		Name      string `json:"file_name"`
		Mutations []struct {
			Type, Status string
			Line, Column int
		}
	}
}

// copyTree copies the files that git does not ignore to a temporary directory.
// Gremlins copies the whole tree for each of its workers, including ignored
// files.
func copyTree() (dir string, err error) {
	if dir, err = os.MkdirTemp("", "mutants"); err != nil {
		return "", err
	}
	out, err := exec.Command("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard").Output()
	if err != nil {
		return "", fmt.Errorf("git ls-files: %w", err)
	}
	for file := range strings.SplitSeq(strings.TrimRight(string(out), "\x00"), "\x00") {
		text, err := os.ReadFile(file)
		if errors.Is(err, fs.ErrNotExist) { // deleted, but still in the index
			continue
		}
		to := filepath.Join(dir, file)
		if err == nil {
			err = os.MkdirAll(filepath.Dir(to), 0o755)
		}
		if err == nil {
			err = os.WriteFile(to, text, 0o644)
		}
		if err != nil {
			return "", err
		}
	}
	return dir, nil
}

// unleash lets gremlins find the mutants of a package of the tree, and which of
// them its tests reach. It runs the tests on these, and returns all mutants.
//
// Gremlins itself would compile and link a test binary for each mutant, and run
// all tests. It passes no flags to them, but GOFLAGS applies.
func unleash(tree, pkg string) ([]mutant, error) {
	output := filepath.Join(tree, "gremlins.json")
	defer func() { _ = os.Remove(output) }()
	cmd := exec.Command("go", "tool", "-modfile=tools/gremlins/go.mod", "gremlins", "unleash", "--output", output,
		"--dry-run", "--invert-negatives=false", // ARITHMETIC_BASE does the same
		"./"+pkg)
	cmd.Dir = tree
	cmd.Env = append(os.Environ(), "GOFLAGS="+os.Getenv("GOFLAGS")+" -short -count=1 -vet=off -ldflags=-w")
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("gremlins: %w\n%s", err, out)
	}
	var all found
	text, err := os.ReadFile(output)
	if err == nil {
		err = json.Unmarshal(text, &all)
	}
	if err != nil {
		return nil, fmt.Errorf("gremlins found nothing: %w", err)
	}
	p, err := load(tree, pkg)
	if err != nil {
		return nil, err
	}
	var mutants []mutant
	for _, file := range all.Files {
		if strings.Contains(file.Name, "/") || strings.HasSuffix(file.Name, ".gen.go") { // subpackage, or generated
			continue
		}
		for _, mutation := range file.Mutations {
			m := mutant{file: path.Join(pkg, file.Name), line: mutation.Line, column: mutation.Column, status: mutation.Status}
			counts, err := p.describe(&m, mutation.Type)
			if err != nil {
				return nil, err
			}
			if counts {
				mutants = append(mutants, m)
			}
		}
	}
	slices.SortFunc(mutants, mutant.compare)
	number(mutants)
	return mutants, p.tryAll(mutants, 10*time.Second)
}
