package account

import (
	"fmt"
	"slices"
	"strings"

	"github.com/cardmint/cardmint/internal/card"
)

// Scope is something that a token may be allowed to do. The contract says which
// operation needs which.
type Scope string

const (
	CardsRead         Scope = "cards:read"         // list and read cards
	CardsCreate       Scope = "cards:create"       // create and cancel cards, and pay for simulated ones
	CredentialsReveal Scope = "credentials:reveal" // see credentials; without it they are masked
	WebhooksManage    Scope = "webhooks:manage"    // everything about webhooks
	EventsRead        Scope = "events:read"        // read the feed of events
)

// KnownScopes returns every scope there is.
func KnownScopes() []Scope {
	return []Scope{CardsRead, CardsCreate, CredentialsReveal, WebhooksManage, EventsRead}
}

// Known reports whether there is such a scope.
func (s Scope) Known() bool { return slices.Contains(KnownScopes(), s) }

// Scopes is a set of scopes: bit n is that of KnownScopes()[n]. The zero value
// is empty.
type Scopes uint32

// AllScopes has every scope, also those of later versions.
const AllScopes = ^Scopes(0)

const allScopes = "all"

// ScopesOf returns the set of the given scopes.
func ScopesOf(scopes ...Scope) (set Scopes) {
	for i, s := range KnownScopes() {
		if slices.Contains(scopes, s) {
			set |= 1 << i
		}
	}
	return set
}

// Has reports whether the set has a scope.
func (s Scopes) Has(scope Scope) bool {
	i := slices.Index(KnownScopes(), scope)
	return i >= 0 && s&(1<<i) != 0
}

// Names returns the names of the scopes, or "all" alone.
func (s Scopes) Names() []string {
	if s == AllScopes {
		return []string{allScopes}
	}
	names := []string{}
	for _, scope := range KnownScopes() {
		if s.Has(scope) {
			names = append(names, string(scope))
		}
	}
	return names
}

// String returns the names with commas between. ReadScopes and ParseScopes read
// it.
func (s Scopes) String() string { return strings.Join(s.Names(), ",") }

// ReadScopes reads what String has written. It leaves out scopes that only
// later versions know.
func ReadScopes(text string) Scopes {
	if text == allScopes {
		return AllScopes
	}
	var scopes []Scope
	for name := range strings.SplitSeq(text, ",") {
		scopes = append(scopes, Scope(name))
	}
	return ScopesOf(scopes...)
}

// UnknownScopeError is returned for a scope that does not exist.
type UnknownScopeError struct {
	Name string
	Near Scope // the scope that may be meant; "" if none is similar
}

func (e *UnknownScopeError) Error() string {
	text := fmt.Sprintf("there is no scope %q", e.Name)
	if e.Near != "" {
		text += fmt.Sprintf(": did you mean %s?", e.Near)
	}
	return text
}

// ParseScopes reads names with commas between, or "all". The error is an
// *UnknownScopeError if there is no such scope, also for no name.
func ParseScopes(text string) (Scopes, error) {
	if text == allScopes {
		return AllScopes, nil
	}
	var scopes []Scope
	for name := range strings.SplitSeq(text, ",") {
		scope := Scope(strings.TrimSpace(name))
		if !scope.Known() {
			return 0, &UnknownScopeError{string(scope), card.Nearest(string(scope), KnownScopes())}
		}
		scopes = append(scopes, scope)
	}
	return ScopesOf(scopes...), nil
}
