package account

import (
	"fmt"
	"slices"
	"strings"

	"github.com/cardmint/cardmint/internal/card"
)

// Scope is a permission of a token. The contract defines which operation needs
// which scope.
type Scope string

const (
	CardsRead         Scope = "cards:read"         // list and read cards
	CardsCreate       Scope = "cards:create"       // create and cancel cards, and pay for simulated ones
	CredentialsReveal Scope = "credentials:reveal" // read credentials, which are masked otherwise
	WebhooksManage    Scope = "webhooks:manage"    // everything about webhooks
	EventsRead        Scope = "events:read"        // read the feed of events
)

// KnownScopes returns all scopes of this version.
func KnownScopes() []Scope {
	return []Scope{CardsRead, CardsCreate, CredentialsReveal, WebhooksManage, EventsRead}
}

// Known reports whether the scope is one of this version.
func (s Scope) Known() bool { return slices.Contains(KnownScopes(), s) }

// Scopes is a set of scopes: bit n stands for KnownScopes()[n]. The zero value
// is empty.
type Scopes uint32

// AllScopes contains every scope, including scopes of later versions.
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

// Has reports whether the set contains a scope.
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

// String returns the names, separated by commas.
func (s Scopes) String() string { return strings.Join(s.Names(), ",") }

// ReadScopes parses the result of String. It ignores scopes of later versions.
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
	Near Scope // a similar scope; "" if there is none
}

func (e *UnknownScopeError) Error() string {
	text := fmt.Sprintf("there is no scope %q", e.Name)
	if e.Near != "" {
		text += fmt.Sprintf(": did you mean %s?", e.Near)
	}
	return text
}

// ParseScopes parses names separated by commas, or "all". The error is an
// *UnknownScopeError if a name is unknown or empty.
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
