package rig_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cardmint/cardmint/internal/rig"
)

// answering is a server that answers every request with a text, and counts
// them.
func answering(t *testing.T, text string) (url string, served *atomic.Int64) {
	t.Helper()
	served = new(atomic.Int64)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		served.Add(1)
		_, _ = io.WriteString(w, text)
	}))
	t.Cleanup(s.Close)
	return s.URL, served
}

// patience is long enough for a busy machine. One test waits for all of it.
const patience = 2 * time.Second

// ask calls a JSON-RPC method, reads at most 1 MB of the response, and times
// out after patience.
func ask(url, method string) (status int, answer string, err error) {
	client := http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Post(url+"/json_rpc", "application/json", strings.NewReader(`{"method":"`+method+`"}`))
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(res.Body, 1<<20))
	return res.StatusCode, string(body), err
}

func TestProxy_Faults(t *testing.T) {
	real, served := answering(t, `{"result":"0123456789"}`)
	p := rig.NewProxy(t, real)
	for _, tc := range []struct {
		name   string
		fault  rig.Fault
		status int
		answer string // prefix
		length int
		err    func(error) bool
		served int64
	}{
		{"pass", rig.Pass, 200, `{"result":"0123456789"}`, 23, nil, 1},
		{"hang", rig.Hang, 0, "", 0, isTimeout, 0},
		{"reset", rig.Reset, 0, "", 0, func(err error) bool { return errors.Is(err, syscall.ECONNRESET) }, 0},
		{"lose answer", rig.LoseAnswer, 0, "", 0, func(err error) bool { return err != nil && !isTimeout(err) }, 1},
		{"error", rig.RPCError, 200, `{"id":"0","jsonrpc":"2.0","error"`, 77, nil, 0},
		{"truncated", rig.TruncatedJSON, 200, `{"result":"`, 11, nil, 1},
		{"HTML", rig.HTML, 200, "<!DOCTYPE html>", 59, nil, 0},
		{"endless", rig.EndlessBody, 200, `{"id":"0","jsonrpc":"2.0","result":{"status":"xxx`, 1 << 20, nil, 0},
		{"500", rig.Status500, 500, "Internal", 22, nil, 0},
	} {
		p.Break(tc.fault)
		before := served.Load()
		status, answer, err := ask(p.URL, "get_info")
		if status != tc.status || !strings.HasPrefix(answer, tc.answer) || len(answer) != tc.length ||
			served.Load()-before != tc.served {
			t.Errorf("%s: status %d, %d bytes, served %d: %.60s", tc.name, status, len(answer), served.Load()-before, answer)
		}
		if tc.err == nil && err != nil || tc.err != nil && !tc.err(err) {
			t.Errorf("%s: %v", tc.name, err)
		}
	}
}

func isTimeout(err error) bool {
	timeout, ok := errors.AsType[interface {
		error
		Timeout() bool
	}](err)
	return ok && timeout.Timeout()
}

func TestProxy_OneMethodAndAnotherTarget(t *testing.T) {
	one, _ := answering(t, "one")
	two, _ := answering(t, "two")
	p := rig.NewProxy(t, one)
	p.Break(rig.Status500, "store")
	if status, _, err := ask(p.URL, "store"); status != 500 {
		t.Errorf("store: %d, %v", status, err)
	}
	if _, answer, err := ask(p.URL, "refresh"); answer != "one" {
		t.Errorf("refresh: %q, %v", answer, err)
	}
	p.Target(two)
	if _, answer, err := ask(p.URL, "refresh"); answer != "two" {
		t.Errorf("refresh: %q, %v", answer, err)
	}
	p.Before("refresh", func() { p.Target(one) })
	for range 2 {
		if _, answer, err := ask(p.URL, "refresh"); answer != "one" {
			t.Errorf("refresh: %q, %v", answer, err)
		}
	}
	if n := p.Calls("refresh"); n != 4 {
		t.Errorf("%d calls, want 4", n)
	}
}

func TestProxy_Hang_ContinuesAfterRestore(t *testing.T) {
	real, _ := answering(t, "real")
	p := rig.NewProxy(t, real)
	p.Break(rig.Hang)
	arrived := make(chan struct{})
	p.Before("refresh", func() { close(arrived) })
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			if _, answer, err := ask(p.URL, "refresh"); answer != "real" {
				t.Errorf("%q, %v", answer, err)
			}
		})
	}
	<-arrived
	p.Restore()
	group.Wait()
}
