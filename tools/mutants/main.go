// Command mutants runs mutation tests with gremlins. It fails if a package's
// tests reach or kill too few mutants, or if a mutant survives that is not
// listed.
//
// Each package is tested alone and with -short, so that no server is started.
// Survivors are compared with survivors.txt, the list of accepted ones. It does
// not count mutants that do not compile, which gremlins reports as killed,
// mutants outside of functions, which it reports as not covered, and mutants in
// generated files.
package main

import (
	"flag"
	"fmt"
	"log"
	"os"
	"path"
	"strings"
	"text/tabwriter"
)

const (
	minCoverage = 80.0 // percent of mutants that the tests reach
	minEfficacy = 95.0 // percent of reached mutants that are killed or listed
)

// tally counts the mutants of a package.
type tally struct {
	pkg                string
	killed, timedOut   int
	lived, listed      int // listed ones count as lived, too
	coverage, efficacy float64

	survivors []mutant // not listed
	uncovered []mutant
	gone      []string // listed, but did not survive
}

func main() {
	log.SetFlags(0)
	list := flag.String("survivors", "tools/mutants/survivors.txt", "the file of the mutants that may live")
	verbose := flag.Bool("v", false, "name the mutants that no test reaches, too")
	flag.Parse()
	if flag.NArg() == 0 {
		log.Fatal("usage: mutants [-v] PACKAGE...")
	}
	text, err := os.ReadFile(*list)
	if err != nil {
		log.Fatal(err)
	}
	may, err := parseSurvivors(string(text))
	if err != nil {
		log.Fatalf("%s: %v", *list, err)
	}
	tree, err := copyTree()
	if err != nil {
		log.Fatal(err)
	}
	var tallies []tally
	for _, pkg := range flag.Args() {
		log.Printf("mutating %s...", pkg)
		mutants, err := unleash(tree, path.Clean(pkg))
		if err != nil {
			_ = os.RemoveAll(tree)
			log.Fatalf("%s: %v", pkg, err)
		}
		tallies = append(tallies, count(path.Clean(pkg), mutants, may))
	}
	_ = os.RemoveAll(tree)
	if !report(tallies, *verbose) {
		os.Exit(1)
	}
}

// parseSurvivors returns the reasons by mutant.
func parseSurvivors(text string) (map[string]string, error) {
	may := map[string]string{}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		mutant, why, found := strings.Cut(line, " -- ")
		if !found || strings.TrimSpace(why) == "" {
			return nil, fmt.Errorf("no reason given: %s", line)
		}
		if may[mutant] != "" {
			return nil, fmt.Errorf("listed twice: %s", mutant)
		}
		may[mutant] = why
	}
	return may, nil
}

// count sums up the mutants of a package. may contains the listed ones.
func count(pkg string, mutants []mutant, may map[string]string) tally {
	t := tally{pkg: pkg}
	alive := map[string]bool{}
	for _, m := range mutants {
		switch m.status {
		case killed:
			t.killed++
		case timedOut:
			t.timedOut++
		case notCovered:
			t.uncovered = append(t.uncovered, m)
		case lived:
			t.lived++
			alive[m.name] = true
			if may[m.name] != "" {
				t.listed++
				continue
			}
			t.survivors = append(t.survivors, m)
		}
	}
	for name := range may {
		if strings.HasPrefix(name, pkg+"/") && !alive[name] {
			t.gone = append(t.gone, name)
		}
	}
	reached := t.killed + t.timedOut + t.lived
	t.coverage = percent(reached, reached+len(t.uncovered))
	t.efficacy = percent(t.killed+t.timedOut+t.listed, reached)
	return t
}

func percent(part, whole int) float64 {
	if whole == 0 {
		return 100
	}
	return 100 * float64(part) / float64(whole)
}

// report prints the tallies, and reports whether all packages pass.
func report(tallies []tally, verbose bool) bool {
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintln(table, "package\tkilled\ttimed out\tlived\tlisted\tnot covered\tcoverage\tefficacy\t")
	for _, t := range tallies {
		_, _ = fmt.Fprintf(table, "%s\t%d\t%d\t%d\t%d\t%d\t%.1f %%\t%.1f %%\t\n", t.pkg, t.killed, t.timedOut, t.lived,
			t.listed, len(t.uncovered), t.coverage, t.efficacy)
	}
	_ = table.Flush()
	for _, t := range tallies {
		for _, m := range t.survivors {
			fmt.Printf("lived, and is not listed (line %d):\n  %s\n", m.line, m.name)
		}
		for _, m := range t.gone {
			fmt.Printf("is listed, and did not live:\n  %s\n", m)
		}
		for _, m := range t.uncovered {
			if verbose {
				fmt.Printf("is not reached (line %d):\n  %s\n", m.line, m.name)
			}
		}
	}
	good := true
	for _, t := range tallies {
		for _, fault := range t.faults() {
			fmt.Printf("%s: %s\n", t.pkg, fault)
			good = false
		}
	}
	return good
}

// faults returns the reasons why a package fails.
func (t tally) faults() (all []string) {
	if t.coverage < minCoverage {
		all = append(all, fmt.Sprintf("the tests reach %.1f %% of the mutants, want %.0f %%", t.coverage, minCoverage))
	}
	if t.efficacy < minEfficacy {
		all = append(all,
			fmt.Sprintf("%.1f %% of those that are reached are killed or listed, want %.0f %%", t.efficacy, minEfficacy))
	}
	if n := len(t.survivors); n > 0 {
		all = append(all, fmt.Sprintf("%d lived that are not listed", n))
	}
	return all
}
