package cli

import (
	"context"
	"errors"
	"time"

	"github.com/cardmint/cardmint/internal/watcher"
)

const moneroEvery = 2 * time.Second

type moneroFlags struct {
	Confirmations int `env:"CONFIRMATIONS" default:"10"`
}

func (f moneroFlags) open(ctx context.Context) (watcher.Chain, error) { return nil, errors.New("soon") }

type walletCheckCommand struct{}

func (walletCheckCommand) Run(ctx context.Context, g *globals) error { return nil }
