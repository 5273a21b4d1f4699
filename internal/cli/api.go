package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/client"
	"github.com/cardmint/cardmint/internal/app"
)

const defaultURL = "http://127.0.0.1:8080"

// apiFlags are the flags of commands that call the API as an integrator does.
type apiFlags struct {
	URL   string `env:"CARDMINT_URL" placeholder:"URL" help:"Address of the service. Defaults to that of a running 'cardmint dev' of this user, otherwise to http://127.0.0.1:8080."`
	Token string `env:"CARDMINT_TOKEN" placeholder:"TOKEN" help:"The account's API token. Defaults to that of a running 'cardmint dev' of this user. Better set in the environment, where no other user sees it."`
}

// open fills in the address and the token, and returns a client. Without a
// token, it uses both of a running 'cardmint dev'. That token is sent to no
// other address.
func (a *apiFlags) open() (*client.Client, error) {
	a.URL = withScheme(a.URL)
	if a.Token == "" {
		dev, err := readDevState()
		switch {
		case err != nil:
			return nil, app.WithHint(errors.New("no token: CARDMINT_TOKEN is not set, and 'cardmint dev' does not run"),
				"start a sandbox in another terminal: %s dev; or set CARDMINT_URL and CARDMINT_TOKEN", programName())
		case a.URL != "" && a.URL != dev.URL:
			return nil, app.WithHint(fmt.Errorf("no token for %s: CARDMINT_TOKEN is not set", a.URL),
				"'cardmint dev' runs at %s: leave out --url and CARDMINT_URL to use it", dev.URL)
		}
		a.URL, a.Token = dev.URL, dev.Token
	}
	a.URL = cmp.Or(a.URL, defaultURL)
	// Someone waits at a terminal: fail early.
	api, err := client.New(a.URL, a.Token, client.WithUserAgent("cardmint/"+app.Version()),
		client.WithRetry(3, 5*time.Second))
	if err != nil {
		return nil, app.WithHint(errors.New(strings.TrimPrefix(err.Error(), "client: ")),
			"--url takes an address such as https://cards.example.com, and CARDMINT_TOKEN a token of the account")
	}
	return api, nil
}

// sandbox reports whether the token is one of test mode.
func (a *apiFlags) sandbox() bool { return strings.HasPrefix(a.Token, "cm_test_") }

// explain rewrites an error of the client for people, with a hint.
func (a *apiFlags) explain(err error) error {
	var refused *client.Error
	var over *client.PaymentError
	var network net.Error
	switch {
	case err == nil, errors.Is(err, context.Canceled), app.Hint(err) != "":
		return err
	case errors.As(err, &refused):
		return a.explainRefusal(refused)
	case errors.As(err, &over):
		return over
	case errors.Is(err, syscall.ECONNREFUSED):
		return app.WithHint(fmt.Errorf("no service listens at %s", a.URL),
			"start a sandbox with: %s dev; or name another address with --url or CARDMINT_URL", programName())
	case errors.Is(err, context.DeadlineExceeded), os.IsTimeout(err):
		return app.WithHint(fmt.Errorf("%s did not answer in time", a.URL), "check --url and CARDMINT_URL, and try again")
	case errors.As(err, &network):
		cause := error(network)
		var request *url.Error
		if errors.As(err, &request) {
			cause = request.Err
		}
		return app.WithHint(fmt.Errorf("%s can't be reached: %w", a.URL, cause), "check --url and CARDMINT_URL")
	}
	return app.WithHint(err, "check that --url or CARDMINT_URL is the address of a cardmint service")
}

// explainRefusal rewrites the response to a refused request.
func (a *apiFlags) explainRefusal(e *client.Error) error {
	text := cmp.Or(e.Detail, e.Title)
	if len(e.Fields) > 0 {
		var fields []string
		for _, f := range e.Fields {
			_, name, _ := strings.Cut(f.Pointer, "/") // of /usd_amount, or query/after
			fields = append(fields, strings.TrimSpace(name+" "+f.Detail))
		}
		text = strings.Join(fields, "; ")
	}
	about := fmt.Sprintf("status %d", e.Status)
	if e.Code != "" {
		about = string(e.Code)
	}
	if e.RequestID != "" {
		about += ", request " + e.RequestID
	}
	err := fmt.Errorf("%s (%s)", strings.TrimSuffix(oneLine(text), "."), oneLine(about))
	switch {
	case e.Code == client.ProblemCodeUnauthorized:
		return app.WithHint(err,
			"check --url, and that CARDMINT_TOKEN is a token of the account that is neither expired nor revoked")
	case e.Code == client.ProblemCodeInsufficientScope:
		return app.WithHint(err, "an operator creates a token with more scopes: cardmint token create --help")
	case e.Code == "":
		return app.WithHint(err, "check that --url or CARDMINT_URL is the address of a cardmint service")
	case e.RetryAfter > 0:
		return app.WithHint(err, "try again in %s", e.RetryAfter.Round(time.Second))
	}
	return app.WithHint(err, "%s/docs/errors#%s explains it", a.URL, e.Code)
}

// awaitEvents returns the events after the given one, of one card unless id is
// zero. It waits for the first up to a limit of whole seconds.
func (a *apiFlags) awaitEvents(ctx context.Context, api *client.Client, after int64, id uuid.UUID,
	limit time.Duration) (events []client.Event, err error) {
	query := url.Values{"after": {strconv.FormatInt(after, 10)}, "wait": {strconv.Itoa(int(limit.Seconds()))}}
	if id != uuid.Nil {
		query.Set("card", id.String())
	}
	err = api.Do(ctx, http.MethodGet, "/api/events?"+query.Encode(), nil, &events,
		client.WithAttemptTimeout(limit+30*time.Second))
	return events, err
}

// withoutCard adds a hint to an error about a card that is not found.
func (a *apiFlags) withoutCard(err error, id uuid.UUID) error {
	var refused *client.Error
	if errors.As(err, &refused) && refused.Status == http.StatusNotFound {
		return app.WithHint(fmt.Errorf("the account has no card %s", id),
			"check the uuid, and that CARDMINT_TOKEN belongs to the account that created the card")
	}
	return a.explain(err)
}

// cardArg is an optional argument that names a card of the account.
type cardArg struct {
	UUID string `arg:"" optional:"" help:"The card's uuid. Defaults to the newest card."`
}

// find returns the named card, or the newest card in the list for which fits
// returns true.
func (c cardArg) find(ctx context.Context, api *client.Client, a *apiFlags, list client.ListCardsOptions,
	fits func(*client.Card) bool) (*client.Card, error) {
	if c.UUID != "" {
		id, err := uuid.Parse(c.UUID)
		if err != nil {
			return nil, app.WithHint(fmt.Errorf("%q is not the uuid of a card", c.UUID),
				"'cardmint card create' prints it; leave it out for the newest card")
		}
		found, err := api.GetCard(ctx, id)
		return found, a.withoutCard(err, id)
	}
	for found, err := range api.ListCards(ctx, list) {
		if err != nil {
			return nil, a.explain(err)
		}
		if fits(found) {
			return found, nil
		}
	}
	return nil, app.WithHint(errors.New("there is no such card yet"), "create one: %s card create 150", programName())
}
