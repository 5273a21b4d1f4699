//go:build drill

package acceptance_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/client"
	"github.com/cardmint/cardmint/internal/rig"
	"github.com/cardmint/cardmint/internal/supplier/reference"
)

// supplierProcess is a supplier in a separate process, with its own ledger.
type supplierProcess struct {
	*rig.Process
	url, control, ledger string
	config               string // path of suppliers.toml
	log                  string
}

// openSupplier starts the supplier and writes suppliers.toml.
func (c *chaos) openSupplier() {
	c.t.Helper()
	dir := c.t.TempDir()
	c.supplier = &supplierProcess{url: fmt.Sprintf("127.0.0.1:%d", rig.FreePort(c.t)),
		control: fmt.Sprintf("127.0.0.1:%d", rig.FreePort(c.t)),
		ledger:  filepath.Join(dir, "supplier.db"), log: filepath.Join(c.t.ArtifactDir(), "supplier.log")}
	c.supplier.config = writeSuppliers(c.t, dir, "http://"+c.supplier.url)
	c.startSupplier()
}

// startSupplier starts the supplier without waiting for it.
func (c *chaos) startSupplier() {
	c.t.Helper()
	s := c.supplier
	log, err := os.OpenFile(s.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		c.t.Fatal(err)
	}
	defer func() { _ = log.Close() }()
	cmd := exec.Command(c.program.path, "supplier", "serve", "--listen", s.url, "--control", s.control, "--file",
		s.ledger, "--slowness", "3s",
		"--pending-for", "2s", "--callback-url", c.replicas[0].url+"/supplier/acme/callback")
	cmd.Env = append(c.program.env, "CARDMINT_SUPPLIER_SECRET="+supplierSecret.Reveal())
	cmd.Stdout, cmd.Stderr = log, log
	s.Process = rig.Start(c.t, cmd)
}

// setBehavior replaces the supplier's rules. A restarted supplier has none.
func (c *chaos) setBehavior(rules ...string) error {
	body, err := json.Marshal(append([]string{}, rules...))
	if err != nil {
		return err
	}
	req, err := http.NewRequest(http.MethodPut, "http://"+c.supplier.control+"/behaviour", bytes.NewReader(body))
	if err != nil {
		return err
	}
	res, err := (&http.Client{Timeout: 5 * time.Second}).Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusNoContent {
		return errors.New(res.Status)
	}
	return nil
}

// supplierFault picks a fault of the supplier.
func (c *chaos) supplierFault() fault {
	s := c.supplier
	ill := func(rules ...string) fault {
		return fault{"supplier " + strings.Join(rules, " "), targetSupplier, c.between(time.Second, 8*time.Second),
			func() { _ = c.setBehavior(rules...) }, func() { _ = c.setBehavior() }}
	}
	return []fault{
		{"supplier killed", targetSupplier, c.between(0, 5*time.Second), func() { s.Kill() }, c.startSupplier},
		{"supplier suspended", targetSupplier, c.between(time.Second, 20*time.Second), func() {
			s.Signal(c.t, syscall.SIGSTOP)
		}, func() { s.Signal(c.t, syscall.SIGCONT) }},
		ill("ambiguous=0.7"),
		ill("pending"),
		ill("slow=0.5", "ambiguous=0.5"),
		ill("out-of-stock=0.5"),
		ill("rate-limited=0.5", "maintenance=0.3"),
	}[c.random.IntN(7)]
}

// networkFault breaks connections to the databases.
func (c *chaos) networkFault() fault {
	if c.random.IntN(2) == 0 {
		return fault{"connections cut", targetNetwork, c.between(time.Second, 6*time.Second), func() {
			for range 20 {
				c.lines[c.random.IntN(2)].Cut()
				c.sleep(0, 100*time.Millisecond)
			}
		}, func() {}}
	}
	line := c.lines[c.random.IntN(2)]
	return fault{"database out of reach", targetNetwork, c.between(time.Second, 6*time.Second), line.Down, line.Up}
}

// verifySupplier compares the supplier's ledger with the cards. The supplier
// must have made exactly one card for each issued one, and none for any other.
// It must not have received a request for an unpaid card.
func (c *chaos) verifySupplier(cards, issued map[uuid.UUID]*client.Card, ledger ledger) {
	c.t.Helper()
	entries, err := reference.ReadLedger(c.t.Context(), c.supplier.ledger)
	if err != nil {
		c.t.Fatal(err)
	}
	made, counts := map[uuid.UUID]int{}, map[string]int{}
	for _, e := range entries {
		counts[e.What]++
		text, _, _ := strings.Cut(e.Key, ".")
		id, err := uuid.Parse(text)
		if err != nil || cards[id] == nil {
			c.t.Errorf("the supplier received a request for %s, which is not a card", e.Key)
			continue
		}
		switch e.What {
		case reference.Asked:
			if !ledger.isPaid(cards[id]) {
				c.t.Errorf("the supplier received a request for card %s, which is not paid", id)
			}
		case reference.Made:
			made[id]++
		}
	}
	for id := range issued {
		if made[id] != 1 {
			c.t.Errorf("card %s is issued, but the supplier made it %d times", id, made[id])
		}
	}
	for id, n := range made {
		if issued[id] == nil {
			c.t.Errorf("card %s is not issued, but the supplier made it %d times", id, n)
		}
	}
	c.t.Logf("the supplier's ledger: %v", counts)
}
