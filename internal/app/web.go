package app

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/docs"
	"github.com/cardmint/cardmint/server"
)

// WebConfig configures what browsers may do: where the pages of the service
// are, and which origins may call its API.
type WebConfig struct {
	PublicURL   string   `name:"public-url" env:"CARDMINT_PUBLIC_URL" placeholder:"URL" help:"Where clients reach the service, for example https://cards.example. The type of an error links to the documentation there; without it, to the project's."`
	CORSOrigins []string `name:"cors-origins" env:"CARDMINT_CORS_ORIGINS" placeholder:"ORIGIN" help:"Origins whose pages may call the API from a browser, for example https://shop.example. Defaults to none. Anyone who opens a page can read its token."`
}

// validate returns an error if a setting is not usable. It normalizes both as
// browsers do.
func (f *WebConfig) validate(mode string) error {
	for i, origin := range f.CORSOrigins {
		u, err := httpURL(origin)
		if err != nil {
			return WithHint(fmt.Errorf("--cors-origins: %q is not an origin: %w", origin, err),
				"name each one, for example https://shop.example,https://admin.example:8443; there is no wildcard")
		}
		f.CORSOrigins[i] = u
	}
	if f.PublicURL == "" {
		return nil
	}
	u, err := httpURL(strings.TrimSuffix(f.PublicURL, "/"))
	if err == nil && mode == card.LiveMode && !strings.HasPrefix(u, "https:") {
		err = errors.New("live mode needs https")
	}
	f.PublicURL = u
	return WithHint(err, "--public-url takes a scheme and a host, for example https://cards.example")
}

// httpURL returns a URL that has only a scheme, a host and perhaps a port,
// without a port that the scheme implies.
func httpURL(text string) (string, error) {
	u, err := url.Parse(strings.ToLower(text))
	switch {
	case err != nil:
		return "", errors.New("it can't be read")
	case u.Scheme != "http" && u.Scheme != "https":
		return "", errors.New("it does not start with https:// or http://")
	case u.Hostname() == "" || strings.ContainsAny(u.Host, "* "):
		return "", errors.New("it has no host")
	case u.String() != u.Scheme+"://"+u.Host || strings.HasSuffix(u.Host, ":"):
		return "", errors.New("it has more than a scheme, a host and a port")
	}
	if port := map[string]string{"http": ":80", "https": ":443"}[u.Scheme]; strings.HasSuffix(u.Host, port) {
		u.Host = strings.TrimSuffix(u.Host, port)
	}
	return u.String(), nil
}

// addWeb adds the documentation pages and the origins that may call the API.
func (p *process) addWeb(ctx context.Context) error {
	p.server.Origins, p.server.PublicURL = p.cfg.Web.CORSOrigins, p.cfg.Web.PublicURL
	token := card.Secret("")
	if p.cfg.Dev {
		var err error
		if token, err = p.accounts.DevToken(ctx); err != nil {
			return err
		}
	}
	contract, err := server.Contract()
	if err != nil {
		return err
	}
	p.server.Docs = docs.New(token.Reveal(), contract)
	return nil
}
