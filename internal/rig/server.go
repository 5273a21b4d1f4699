package rig

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/icholy/digest"
)

// server is a process that speaks JSON-RPC.
type server struct {
	*Process
	URL string

	program, dir, user, password string
	old                          bool // runs the system's version, even if the tests use the current one
	port                         int
	client                       *http.Client
}

func newServer(tb testing.TB, program, dir, user, password string) server {
	tb.Helper()
	s := server{program: program, dir: dir, user: user, password: password, port: FreePort(tb)}
	s.URL = fmt.Sprintf("http://127.0.0.1:%d", s.port)
	s.client = &http.Client{Timeout: 2 * time.Minute, Transport: &http.Transport{}}
	if user != "" {
		s.client.Transport = &digest.Transport{Username: user, Password: password, Transport: s.client.Transport}
	}
	return s
}

func (s *server) run(tb testing.TB, args ...string) {
	tb.Helper()
	cmd := exec.Command(s.path(tb), append(args, "--rpc-bind-port="+strconv.Itoa(s.port))...)
	cmd.Dir = s.dir
	// the programs read their configuration from HOME, and write files there
	cmd.Env = append(os.Environ(), "HOME="+s.dir)
	s.Process = launch(tb, cmd)
}

func (s *server) path(tb testing.TB) string {
	tb.Helper()
	if s.old {
		return Need(tb, s.program, "monero")
	}
	return MoneroProgram(tb, s.program)
}

// Freeze suspends the process, until Thaw.
func (s *server) Freeze(tb testing.TB) {
	tb.Helper()
	s.Signal(tb, syscall.SIGSTOP)
}

// Thaw resumes a frozen process. It does nothing if the process has ended.
func (s *server) Thaw() { _ = s.cmd.Process.Signal(syscall.SIGCONT) }

func (s *server) kill() {
	if s.Process != nil {
		s.Kill()
	}
	s.client.CloseIdleConnections()
}

func (s *server) ended() bool {
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}

// Call calls a JSON-RPC method. params and result may be nil. The test fails if
// the call does.
func (s *server) Call(tb testing.TB, method string, params, result any) {
	tb.Helper()
	if err := s.Ask(method, params, result); err != nil {
		tb.Fatal(err)
	}
}

// Ask is like Call, but returns the error.
func (s *server) Ask(method string, params, result any) error {
	if params == nil {
		params = struct{}{}
	}
	var answer struct {
		Result json.RawMessage
		Error  json.RawMessage
	}
	request := map[string]any{"jsonrpc": "2.0", "id": "0", "method": method, "params": params}
	if err := s.post("/json_rpc", request, &answer); err != nil {
		return fmt.Errorf("%s %s: %w", s.program, method, err)
	}
	if answer.Error != nil {
		return fmt.Errorf("%s %s: %s", s.program, method, answer.Error)
	}
	if result == nil {
		return nil
	}
	return json.Unmarshal(answer.Result, result)
}

func (s *server) post(path string, request, answer any) error {
	body, err := json.Marshal(request)
	if err != nil {
		return err
	}
	res, err := s.client.Post(s.URL+path, "application/json", bytes.NewReader(body))
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusOK {
		return errors.New(res.Status)
	}
	if answer == nil {
		return nil
	}
	return json.NewDecoder(res.Body).Decode(answer)
}
