package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// trial is a test binary that contains every mutant of a package. An
// environment variable activates one of them.
type trial struct {
	binary, dir string // dir is the package's
	tests       []test // in the order of their time
	patience    time.Duration

	mu    sync.Mutex
	kills map[kill]int
}

// kill records that a test killed a mutant of a function.
type kill struct {
	function int
	test     string
}

// test is a test that passes if no mutant is active.
type test struct {
	name    string
	time    time.Duration
	entered map[int]bool // the functions with mutants that it calls, by number
}

// tryAll runs the tests on each runnable mutant, and stores the result. A test
// may take patience plus ten times as long as without mutants.
func (c *code) tryAll(mutants []mutant, patience time.Duration) error {
	dir, err := os.MkdirTemp("", "mutants-trial")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	t := &trial{binary: filepath.Join(dir, "package.test"), dir: c.dir, patience: patience, kills: map[kill]int{}}
	if err := c.build(dir, t.binary, mutants); err != nil {
		return err
	}
	if err := t.watch(dir); err != nil {
		return err
	}
	var workers sync.WaitGroup
	next := make(chan *mutant)
	for range 2 * runtime.NumCPU() { // tests wait, too
		workers.Go(func() {
			for m := range next {
				m.status = t.try(m)
			}
		})
	}
	for i := range mutants {
		if mutants[i].status == runnable {
			next <- &mutants[i]
		}
	}
	close(next)
	workers.Wait()
	return nil
}

// awake is a file that is added to the package. It returns which mutant of a
// function is active. If the environment names a file, it records called
// functions there.
const awake = `package %s

import (
	mutantsos "os"
	mutantsconv "strconv"
	mutantssync "sync"
)

var (
	mutantsFunction, _ = mutantsconv.Atoi(mutantsos.Getenv("MUTANTS_FUNCTION"))
	mutantsAwake, _    = mutantsconv.Atoi(mutantsos.Getenv("MUTANTS_AWAKE"))
	mutantsNotes, _    = mutantsos.OpenFile(mutantsos.Getenv("MUTANTS_NOTES"), mutantsos.O_WRONLY|mutantsos.O_APPEND, 0)
	mutantsNoted       mutantssync.Map
)

func mutantsOf(function int) int {
	if function == mutantsFunction {
		return mutantsAwake
	}
	if mutantsNotes != nil {
		if _, again := mutantsNoted.LoadOrStore(function, true); !again {
			_, _ = mutantsNotes.WriteString(mutantsconv.Itoa(function) + "\n")
		}
	}
	return 0
}
`

// build compiles the tests with a copy of each function for each of its
// mutants.
func (c *code) build(dir, binary string, mutants []mutant) error {
	changed := map[string]*source{} // by path from the root of the module
	for i := range mutants {
		m := &mutants[i]
		if m.status != runnable {
			continue
		}
		if changed[m.file] == nil {
			text, err := os.ReadFile(c.original(m.file))
			if err != nil {
				return err
			}
			changed[m.file] = &source{text: string(text), functions: map[*ast.FuncDecl][]*mutant{}}
		}
		changed[m.file].functions[m.decl] = append(changed[m.file].functions[m.decl], m)
	}
	replace := map[string]string{filepath.Join(c.dir, "mutants_awake.go"): filepath.Join(dir, "awake.go")}
	err := os.WriteFile(filepath.Join(dir, "awake.go"), fmt.Appendf(nil, awake, c.name), 0o600)
	for file, s := range changed {
		broken := filepath.Join(dir, filepath.Base(file))
		replace[c.original(file)] = broken
		err = errors.Join(err, os.WriteFile(broken, []byte(s.broken(c)), 0o600))
	}
	overlay, marshalErr := json.Marshal(map[string]any{"Replace": replace})
	if err := errors.Join(err, marshalErr, os.WriteFile(filepath.Join(dir, "overlay.json"), overlay, 0o600)); err != nil {
		return err
	}
	build := exec.Command("go", "test", "-c", "-o", binary, "-vet=off", "-ldflags=-w", "-overlay",
		filepath.Join(dir, "overlay.json"), ".")
	build.Dir = c.dir
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build: %w\n%s", err, out)
	}
	return nil
}

// watch runs each test alone, and records which functions it calls. Tests that
// fail without a mutant are omitted.
func (t *trial) watch(dir string) error {
	list := exec.Command(t.binary, "-test.list", ".")
	list.Dir = t.dir
	out, err := list.Output()
	if err != nil {
		return fmt.Errorf("list tests: %w", err)
	}
	notes := filepath.Join(dir, "notes")
	for name := range strings.FieldsSeq(string(out)) {
		if !strings.HasPrefix(name, "Test") && !strings.HasPrefix(name, "Fuzz") {
			continue
		}
		if err := os.WriteFile(notes, nil, 0o600); err != nil {
			return err
		}
		began := time.Now()
		status, _ := t.run([]test{{name: name, time: time.Minute}}, "MUTANTS_NOTES="+notes)
		x := test{name: name, time: time.Since(began), entered: map[int]bool{}}
		text, err := os.ReadFile(notes)
		if err != nil {
			return err
		}
		for in := bufio.NewScanner(bytes.NewReader(text)); in.Scan(); {
			n, _ := strconv.Atoi(in.Text())
			x.entered[n] = true
		}
		if status != lived {
			fmt.Fprintf(os.Stderr, "left out, as it fails by itself: %s\n", name)
			continue
		}
		t.tests = append(t.tests, x)
	}
	slices.SortStableFunc(t.tests, func(a, b test) int { return cmp.Compare(a.time, b.time) })
	return nil
}

// atOnce is how many tests one process runs. More would start fewer processes,
// but parallel tests run to completion after a failure.
const atOnce = 6

// try activates a mutant, and returns the result. It runs the tests that call
// its function: the test with most kills of its mutants first, among equals the
// fastest.
func (t *trial) try(m *mutant) string {
	var tests []test
	for _, x := range t.tests {
		if x.entered[m.function] {
			tests = append(tests, x)
		}
	}
	t.mu.Lock()
	slices.SortStableFunc(tests, func(a, b test) int {
		return cmp.Compare(t.kills[kill{m.function, b.name}], t.kills[kill{m.function, a.name}])
	})
	t.mu.Unlock()
	for now := range slices.Chunk(tests, atOnce) {
		status, by := t.run(now, fmt.Sprint("MUTANTS_FUNCTION=", m.function), fmt.Sprint("MUTANTS_AWAKE=", m.number))
		if status != lived {
			t.mu.Lock()
			t.kills[kill{m.function, by}]++
			t.mu.Unlock()
			return status
		}
	}
	return lived
}

var failed = regexp.MustCompile(`(?m)^--- FAIL: (\S+)`)

// run runs tests with environment variables, and returns the first failed test.
func (t *trial) run(tests []test, env ...string) (status, by string) {
	var names []string
	limit := t.patience
	for _, x := range tests {
		names = append(names, regexp.QuoteMeta(x.name))
		limit += 10 * x.time
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	run := exec.CommandContext(ctx, t.binary, "-test.short", "-test.failfast", "-test.run",
		"^("+strings.Join(names, "|")+")$")
	// child processes may hold the output open
	run.Dir, run.Env, run.WaitDelay = t.dir, append(os.Environ(), env...), time.Second
	out, err := run.CombinedOutput()
	switch first := failed.FindSubmatch(out); {
	case ctx.Err() != nil:
		return timedOut, ""
	case err != nil && first != nil:
		return killed, string(first[1])
	case err != nil:
		return killed, ""
	}
	return lived, ""
}
