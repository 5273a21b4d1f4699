// Command cardmint runs and operates the service; package internal/cli is all
// of it.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/cardmint/cardmint/internal/cli"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	os.Exit(cli.Main(ctx, os.Args[1:], os.Stdout, os.Stderr))
}
