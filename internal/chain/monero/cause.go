package monero

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"strings"
	"syscall"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/chain/rpc"
)

// Programs that an operator can restart.
const (
	daemonName = "monerod"
	walletName = "monero-wallet-rpc"
)

// withCause adds the reason for a program's failure as a card.Unready: a few
// words from a fixed set, without addresses or secrets, so that they can label
// a metric. An error that has a reason keeps it; nil stays nil.
func withCause(program string, err error) error {
	if _, known := errors.AsType[card.Unready](err); known || err == nil {
		return err
	}
	cause := transportCause(err)
	if failure, ok := errors.AsType[*rpc.Error](err); ok {
		cause = replyCause(failure)
	}
	if cause == "" {
		return err
	}
	return card.Unready(program + ": " + cause).Wrap(err)
}

// transportCause returns why a program could not be reached, or gave no
// readable response; "" if unknown.
func transportCause(err error) string {
	var certificate *tls.CertificateVerificationError
	var name *net.DNSError
	var network net.Error
	switch {
	case errors.Is(err, rpc.ErrLogin):
		return "login refused"
	case errors.Is(err, card.ErrWrongAnswer):
		return "wrong answer"
	case errors.Is(err, rpc.ErrTooLong):
		return "answer too long"
	case errors.As(err, &certificate):
		return "certificate not valid"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "connection refused"
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return "no route to its machine"
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &network) && network.Timeout():
		return "timeout"
	case errors.As(err, &name):
		return "host name not found"
	case errors.As(err, &network), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "connection lost"
	}
	return ""
}

// replyCause returns the reason for an error that monerod or monero-wallet-rpc
// reported.
func replyCause(e *rpc.Error) string {
	switch {
	case strings.Contains(e.Message, "hard fork version"):
		return "hard fork mismatch"
	case e.Code == codeNotOpen:
		return "no wallet open"
	case e.Code == codeNoDaemon:
		return "no connection to its node"
	case e.Code == codeDaemonBusy, e.Code == codeCoreBusy:
		return "node not synchronized"
	case e.Code == codeDenied:
		return "method denied"
	}
	return "error response"
}
