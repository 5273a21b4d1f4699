package monero_test

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/chain/monero"
	"github.com/cardmint/cardmint/internal/settle"
)

// wantCause fails unless a scan fails with this card.Unready.
func wantCause(t *testing.T, m *monero.Chain, want card.Unready) {
	t.Helper()
	_, err := m.Scan(t.Context(), settle.Query{Newest: settle.NoPosition})
	if got, _ := errors.AsType[card.Unready](err); got != want {
		t.Errorf("cause %q of %v, want %q", got, err, want)
	}
}

func TestChain_Scan_NamesCauseOfReply(t *testing.T) {
	for method, replies := range map[string]map[string]card.Unready{
		"get_info": {
			info(map[string]any{"synchronized": false}):              "monerod: node not synchronized",
			info(map[string]any{"offline": true}):                    "monerod: not ready",
			`"error":{"code":-9,"message":"Core is busy"}`:           "monerod: node not synchronized",
			`"error":{"code":-1,"message":"at http://u:p@10.0.0.1"}`: "monerod: error response",
			`{}`: "monerod: wrong answer",
		},
		"refresh": {
			`"error":{"code":-13,"message":"No wallet file"}`:                                   "monero-wallet-rpc: no wallet open",
			`"error":{"code":-38,"message":"no connection to daemon"}`:                          "monero-wallet-rpc: no connection to its node",
			`"error":{"code":-3,"message":"daemon is busy"}`:                                    "monero-wallet-rpc: node not synchronized",
			`"error":{"code":-1,"message":"Unexpected hard fork version v16 at height 1. ..."}`: "monero-wallet-rpc: hard fork mismatch",
		},
		"get_height": {`{"height":99}`: "node and wallet are at different blocks"},
		"sign_transfer": {
			`"error":{"code":-39,"message":"bad"}`: "the wallet can spend: only a view-only wallet may be used"},
	} {
		for reply, want := range replies {
			t.Run(method+" "+string(want), func(t *testing.T) {
				s, m := newScript(t)
				s.set(method, reply)
				wantCause(t, m, want)
			})
		}
	}
}

func TestChain_Scan_NamesCauseOfConnection(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed := "http://" + listener.Addr().String()
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	server := func(h http.HandlerFunc) string {
		s := httptest.NewServer(h)
		t.Cleanup(s.Close)
		return s.URL
	}
	for name, tt := range map[string]struct {
		url  string
		want card.Unready
	}{
		"nothing listens": {closed, "monerod: connection refused"},
		"it hangs": {server(func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body) // otherwise the server does not notice that the client hangs up
			<-r.Context().Done()
		}), "monerod: timeout"},
		"it hangs up": {server(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }),
			"monerod: connection lost"},
		"wrong password": {server(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) }),
			"monerod: login refused"},
	} {
		t.Run(name, func(t *testing.T) {
			wantCause(t,
				newMonero(t, monero.Config{DaemonURL: tt.url, WalletURL: closed, Timeout: 300 * time.Millisecond}), tt.want)
		})
	}
}
