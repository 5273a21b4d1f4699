package server_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/order"
	"github.com/cardmint/cardmint/internal/store"
)

// ended waits until a request of a token has ended, and returns its log line.
func (d *deployment) ended(t *testing.T, token uuid.UUID) map[string]any {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		for _, e := range d.log.entries(t) {
			if e["msg"] == "request" && e["token"] == token.String() {
				return e
			}
		}
		if time.Now().After(deadline) {
			t.Fatal("the response continues")
		}
	}
}

// wantCut fails the test unless a response is aborted.
func (r reader) wantCut(t *testing.T) {
	t.Helper()
	text, err := io.ReadAll(r.answer.Body)
	if !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, io.ErrUnexpectedEOF) || json.Valid(text) {
		t.Errorf("after %d bytes the response ends with %v", len(text), err)
	}
}

// A client that does not read keeps a response open, but only until its token
// becomes invalid. The token is revoked at another replica.
func TestRevocation_ClientDoesNotRead_Aborts(t *testing.T) {
	for name, query := range map[string]string{"list": "", "page": "?limit=1000"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := deploy(t, setup{})
			id, token := d.tokenOf(t, d.account(t), 0)
			d.insertCards(t, token, 1_500)
			other := d.replica(t)
			l := listen(t, unbent)
			l.sendBuffer = 16 << 10
			serveOn(t, l, other.handler)
			r := other.slowly(t, l.Addr().String(), token, query)
			equal(t, "status", r.answer.StatusCode, http.StatusOK)
			need(t, d.accounts.RevokeToken(t.Context(), id))
			d.clock.advance(4 * time.Second)
			other.ended(t, id)
			r.wantCut(t)
		})
	}
}

// endless is a list that never ends.
func endless(template **card.Card) func(*store.Store) hooked {
	return func(s *store.Store) hooked {
		return hooked{Store: s, cards: func(_ context.Context, filter order.Filter) ([]*card.Card, error) {
			return slices.Repeat([]*card.Card{*template}, filter.Limit), nil
		}}
	}
}

func TestRevocation_ListBeingRead_Aborts(t *testing.T) {
	for name, end := range map[string]func(t *testing.T, d *deployment, id uuid.UUID){
		"revoked": func(t *testing.T, d *deployment, id uuid.UUID) { need(t, d.accounts.RevokeToken(t.Context(), id)) },
		"expired": func(_ *testing.T, d *deployment, _ uuid.UUID) { d.clock.advance(time.Hour) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var template *card.Card
			d := deploy(t, setup{clock: &clock{}, wrap: endless(&template)})
			id, token := d.tokenOf(t, d.account(t), time.Hour)
			template = many(t, d, token)
			l := listen(t, unbent)
			l.sendBuffer = 16 << 10
			serveOn(t, l, d.handler)
			r := d.slowly(t, l.Addr().String(), token, "")
			equal(t, "status", r.answer.StatusCode, http.StatusOK)
			_, err := io.ReadFull(r.answer.Body, make([]byte, 64<<10))
			need(t, err)
			end(t, d, id)
			d.clock.advance(4 * time.Second)
			need(t, r.conn.SetDeadline(time.Now().Add(20*time.Second)))
			r.wantCut(t)
		})
	}
}

// Before the first card, the error is a problem document.
func TestRevocation_BeforeFirstCard_Refused(t *testing.T) {
	t.Parallel()
	reading := make(chan struct{})
	d := deploy(t, setup{clock: &clock{}, wrap: func(s *store.Store) hooked {
		return hooked{Store: s, cards: func(ctx context.Context, _ order.Filter) ([]*card.Card, error) {
			close(reading)
			<-ctx.Done()
			return nil, card.ErrUnavailable.WithCause(ctx.Err())
		}}
	}})
	id, token := d.tokenOf(t, d.account(t), 0)
	answered := make(chan answer)
	go func() { answered <- d.send(t, http.MethodGet, "/api/cards", token, "") }()
	<-reading
	need(t, d.accounts.RevokeToken(t.Context(), id))
	d.clock.advance(4 * time.Second)
	(<-answered).refused(t, http.StatusUnauthorized, "unauthorized")
}

func TestRevocation_StreamNotRead_Aborts(t *testing.T) {
	t.Parallel()
	d := deploy(t, setup{clock: &clock{}})
	name := d.account(t)
	id, token := d.tokenOf(t, name, 0)
	owner, err := d.store.AccountByName(t.Context(), name)
	need(t, err)
	d.happen(t, owner.ID, slices.Repeat([]card.EventType{card.EventDetected}, 2_000)...)
	l := listen(t, unbent)
	l.sendBuffer = 16 << 10
	serveOn(t, l, d.handler)
	conn := dial(t, l.Addr().String())
	_, err = fmt.Fprintf(conn,
		"GET /api/events HTTP/1.1\r\nHost: x\r\nAccept: text/event-stream\r\nAuthorization: Bearer %s\r\n\r\n", token)
	need(t, err)
	answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
	need(t, err)
	equal(t, "status", answer.StatusCode, http.StatusOK)
	need(t, d.accounts.RevokeToken(t.Context(), id))
	d.clock.advance(4 * time.Second)
	d.ended(t, id)
	if text, _ := io.ReadAll(answer.Body); strings.Contains(string(text), "id: 2000\n") {
		t.Error("the stream was sent completely")
	}
}

// Disclosures of a list are logged before they are sent: a process that is
// killed halfway has logged a line.
func TestAudit_List_LogsBeforeFirstCredentials(t *testing.T) {
	t.Parallel()
	var template *card.Card
	d := deploy(t, setup{clock: &clock{}, wrap: endless(&template)})
	name := d.account(t)
	id, token := d.tokenOf(t, name, 0)
	_, other := d.tokenOf(t, name, 0)
	owner, err := d.store.AccountByName(t.Context(), name)
	need(t, err)
	template, err = d.store.CardByUUID(t.Context(), owner.ID, d.issued(t, other))
	need(t, err)
	lines := func() (all []map[string]any) {
		for _, e := range d.log.entries(t) {
			if e["msg"] == "audit" && e["actor"] == "token:"+id.String() {
				all = append(all, e)
			}
		}
		return all
	}
	r := d.slowly(t, d.address(), token, "")
	_, err = io.ReadFull(r.answer.Body, make([]byte, 1))
	need(t, err)
	all := lines()
	if len(all) != 1 || all[0]["list"] != "begun" || all[0]["newest"] != template.UUID.String() ||
		all[0]["operation"] != "listCards" {
		t.Errorf("audited %v", all)
	}
	need(t, r.conn.Close())
	d.ended(t, id)
	if all = lines(); len(all) != 2 || all[1]["list"] != nil || all[1]["cards"] == nil {
		t.Errorf("audited %v", all)
	}
}
