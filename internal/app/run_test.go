package app

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/chain"
	"github.com/cardmint/cardmint/internal/chain/driver"
)

// devProcess returns the configuration of a process with simulated money, in
// its own directory.
func devProcess(t *testing.T) (*Deployment, Config) {
	t.Helper()
	dir, log := t.TempDir(), slog.New(slog.DiscardHandler)
	coin := chain.Coins()[0]
	return &Deployment{DatabaseURL: "sqlite:" + filepath.Join(dir, "x.db"), Keys: filepath.Join(dir, "x.keys"),
			Mode: card.TestMode, Log: log, Audit: log},
		Config{Listen: "127.0.0.1:0", Metrics: "off", Role: RoleAll, Simulated: true, Dev: true,
			Rates: RateConfig{Rate: map[string]string{coin.Code: "150"}, Markup: "0"}, MaxBlind: time.Minute,
			Addresses: AddressConfig{Pool: 10}, Supplier: SupplierConfig{Sandbox: "prompt"},
			Webhooks: WebhookConfig{Timeout: time.Second, Retention: 30 * 24 * time.Hour}, Coins: []Coin{{Coin: coin}}}
}

func TestRun_Simulated_IsReadyAndStops(t *testing.T) {
	t.Parallel()
	d, cfg := devProcess(t)
	ctx, cancel := context.WithCancel(t.Context())
	status := 0
	cfg.Started = func(ctx context.Context, r Running) error {
		defer cancel()
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, r.URL+"/readyz", nil)
		if err != nil {
			return err
		}
		response, err := http.DefaultClient.Do(request)
		if err == nil {
			status = response.StatusCode
			err = response.Body.Close()
		}
		return err
	}
	if err := Run(ctx, d, cfg); err != nil || status != http.StatusOK {
		t.Errorf("error %v, status of readiness %d", err, status)
	}
}

// unopened are settings of a node that must not be opened.
type unopened struct {
	driver.Settings
	t *testing.T
}

func (u unopened) URLs() map[string]string { return nil }

func (u unopened) Open() (driver.Node, error) {
	u.t.Error("the node was opened before the key file was read")
	return nil, errors.New("unreachable")
}

func TestRun_MissingKeyFile_IsReportedBeforeNodesAreOpened(t *testing.T) {
	t.Parallel()
	d, cfg := devProcess(t)
	cfg.Dev, cfg.Simulated, cfg.Coins[0].Settings = false, false, unopened{t: t}
	if err := Run(t.Context(), d, cfg); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(Hint(err), "keys create") {
		t.Errorf("error %v, hint %q", err, Hint(err))
	}
}

func TestRun_PortInUse_LeavesNoFiles(t *testing.T) {
	t.Parallel()
	d, cfg := devProcess(t)
	used, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = used.Close() }()
	cfg.Listen = used.Addr().String()
	if err := Run(t.Context(), d, cfg); err == nil || Hint(err) == "" {
		t.Errorf("error %v, hint %q", err, Hint(err))
	}
	if files, err := os.ReadDir(filepath.Dir(d.Keys)); err != nil || len(files) > 0 {
		t.Errorf("%d files, error %v", len(files), err)
	}
}
