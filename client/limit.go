package client

import (
	"net/http"
	"regexp"
	"strconv"
	"time"
)

// Limit is the state of one of the service's limits after a call.
type Limit struct {
	Name string // for example "token" or "account"
	// requests left; for limits of another kind, US dollars ("open-usd") or
	// lists
	Left   int64
	Reset  time.Duration // until the limit refills; zero if unknown
	Quota  int64         // the maximum; zero if unknown
	Window time.Duration // period of Quota; zero if unknown
}

var (
	limitItem      = regexp.MustCompile(`"([^"\\]*)"((?:\s*;\s*[a-z*][a-z0-9_.*-]*=[^;,"\s]+)*)`)
	limitParameter = regexp.MustCompile(`([a-z*][a-z0-9_.*-]*)=(\d{1,15})(?:;|\s|$)`)
)

// Limits parses the headers RateLimit and RateLimit-Policy, which every
// response has unless the service has no limits. It keeps their order and skips
// items that it can't parse.
func (r Response) Limits() []Limit {
	policies := map[string]map[string]int64{}
	for _, p := range limitItems(r.Header, "RateLimit-Policy") {
		policies[p.name] = p.parameters
	}
	var all []Limit
	for _, l := range limitItems(r.Header, "RateLimit") {
		left, said := l.parameters["r"]
		if !said {
			continue
		}
		policy := policies[l.name]
		all = append(all,
			Limit{Name: l.name, Left: left, Reset: time.Duration(min(l.parameters["t"], 1e9)) * time.Second, Quota: policy["q"],
				Window: time.Duration(min(policy["w"], 1e9)) * time.Second})
	}
	return all
}

type limitMember struct {
	name       string
	parameters map[string]int64
}

// limitItems parses a header that is a list of strings with numeric parameters
// (RFC 9651).
func limitItems(h http.Header, name string) []limitMember {
	var all []limitMember
	for _, value := range h.Values(name) {
		for _, item := range limitItem.FindAllStringSubmatch(value, -1) {
			m := limitMember{item[1], map[string]int64{}}
			for _, p := range limitParameter.FindAllStringSubmatch(item[2], -1) {
				m.parameters[p[1]], _ = strconv.ParseInt(p[2], 10, 64) // fits, by the pattern
			}
			all = append(all, m)
		}
	}
	return all
}
