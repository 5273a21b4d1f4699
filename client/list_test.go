package client

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// pageOf is a page of cards whose uuids end with these numbers.
func pageOf(numbers ...int) string {
	cards := make([]string, len(numbers))
	for i, n := range numbers {
		cards[i] = strings.Replace(testCard, "9b1c97fb1d88", fmt.Sprintf("%012d", n), 1)
	}
	return "[" + strings.Join(cards, ",") + "]"
}

// collect reads a list to its end.
func collect(c *Client, t *testing.T, opts ListCardsOptions) (numbers []string, err error) {
	for card, err := range c.ListCards(t.Context(), opts) {
		if (card == nil) == (err == nil) {
			t.Fatalf("card %v and error %v", card, err)
		}
		if err != nil {
			return numbers, err
		}
		id := card.UUID.String()
		numbers = append(numbers, strings.TrimLeft(id[24:], "0"))
	}
	return numbers, nil
}

func TestListCards_SendsEveryCondition(t *testing.T) {
	c, s := scripted(t, []step{answer(200, "[]")})
	at := time.Date(2026, 11, 1, 1, 0, 0, 5_000_000, time.FixedZone("", 3600))
	if _, err := collect(c, t,
		ListCardsOptions{Status: CardStatusGenerated, PaymentState: PaymentStatePaid, Currency: "monero",
			Reference:    "order 4711&ä",
			CreatedAfter: at, CreatedBefore: at.AddDate(0, 1, 0), PageSize: 7}); err != nil {
		t.Fatal(err)
	}
	want := url.Values{"status": {"generated"}, "payment_state": {"paid"}, "currency": {"monero"},
		"reference":     {"order 4711&ä"},
		"created_after": {"2026-11-01T00:00:00.005Z"}, "created_before": {"2026-12-01T00:00:00.005Z"}, "limit": {"7"}}
	if diff := difference(want, s.seen[0].URL.Query()); diff != "" {
		t.Error(diff)
	}
	if _, err := collect(c, t, ListCardsOptions{}); err != nil || s.seen[1].URL.RawQuery != "limit=500" {
		t.Error(err, s.seen[1].URL)
	}
}

func TestListCards_FollowsThePages(t *testing.T) {
	c, s := scripted(t, []step{
		answer(200, pageOf(5, 4), "Link", `</api/cards?cursor=a&limit=2&status=generated>; rel="next"`),
		answer(200, pageOf(3, 2), "Link", `<https://evil.test/elsewhere?cursor=b&limit=2>; rel="next"`),
		answer(200, pageOf(1), "Link", `</api/cards?limit=2>; rel="first"`),
	})
	got, err := collect(c, t, ListCardsOptions{Status: CardStatusGenerated, PageSize: 2})
	if err != nil {
		t.Fatal(err)
	}
	if diff := difference([]string{"5", "4", "3", "2", "1"}, got); diff != "" {
		t.Error(diff)
	}
	var urls []string
	for _, r := range s.seen {
		urls = append(urls, r.URL.String())
	}
	if diff := difference([]string{
		"https://cards.test/api/cards?limit=2&status=generated",
		"https://cards.test/api/cards?cursor=a&limit=2&status=generated",
		"https://cards.test/api/cards?cursor=b&limit=2", // never to another host
	}, urls); diff != "" {
		t.Error(diff)
	}
}

func TestListCards_EmptyListHasNoStep(t *testing.T) {
	c, s := scripted(t, []step{answer(200, "[]")})
	if got, err := collect(c, t, ListCardsOptions{}); err != nil || len(got) != 0 {
		t.Errorf("%v, %v", got, err)
	}
	if got := s.seen[0].URL.RawQuery; got != "limit=500" {
		t.Errorf("query %s", got)
	}
}

func TestListCards_PageThatBreaksOffComesAgainAsAWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		next := []string{"Link", `</api/cards?cursor=a>; rel="next"`}
		c, _ := scripted(t, []step{
			cutOff(200, pageOf(4, 3), next...), answer(200, pageOf(4, 3), next...),
			reset, problem(503, ProblemCodeUnavailable), answer(200, pageOf(2, 1)),
		})
		got, err := collect(c, t, ListCardsOptions{})
		if diff := difference([]string{"4", "3", "2", "1"}, got); diff != "" || err != nil {
			t.Error(err, diff)
		}
	})
}

func TestListCards_NeverEndsShortWithoutAnError(t *testing.T) {
	first := answer(200, pageOf(3, 2), "Link", `</api/cards?cursor=a>; rel="next"`)
	for name, second := range map[string]step{
		"refused":          problem(401, ProblemCodeUnauthorized),
		"broken":           reset,
		"cut off":          cutOff(200, pageOf(1)),
		"cut short":        answer(200, pageOf(1)[:300]),
		"null":             answer(200, "null"),
		"an object":        answer(200, testCard),
		"a login page":     answer(200, "<html>", "Content-Type", "text/html"),
		"the same again":   first,
		"unreadable link":  answer(200, pageOf(1), "Link", `<http://[::1>; rel="next"`),
		"link without end": answer(200, pageOf(1), "Link", `</api/cards>; rel=next`),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, s := scripted(t, []step{first, second})
				got, err := collect(c, t, ListCardsOptions{})
				if err == nil || len(got) != 2 {
					t.Errorf("%v, %v", got, err)
				}
				if len(s.seen) > 5 {
					t.Errorf("%d requests", len(s.seen))
				}
			})
		})
	}
}

func TestListCards_ConnectionClosedMidPage(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(pageOf(3, 2, 1)[:1500]))
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}))
	defer srv.Close()
	c, err := New(srv.URL, testToken, WithRetry(1, 0))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := collect(c, t, ListCardsOptions{}); err == nil {
		t.Errorf("%v without an error", got)
	}
}

func TestListCards_StopsWithTheLoopAndStartsAfresh(t *testing.T) {
	c, s := scripted(t, []step{answer(200, pageOf(2, 1), "Link", `</api/cards?cursor=a>; rel="next"`)})
	list := c.ListCards(t.Context(), ListCardsOptions{PageSize: 2})
	if len(s.seen) != 0 {
		t.Error("sent a request before the loop began")
	}
	for range 2 {
		for _, err := range list {
			if err != nil {
				t.Fatal(err)
			}
			break
		}
	}
	if len(s.seen) != 2 || s.seen[1].URL.RawQuery != "limit=2" {
		t.Errorf("%d requests, the last is %s", len(s.seen), s.seen[len(s.seen)-1].URL)
	}
}

func TestListCards_RefusalIsAnError(t *testing.T) {
	c, _ := scripted(t, []step{problem(422, ProblemCodeInvalidRequest)})
	_, err := collect(c, t, ListCardsOptions{PageSize: 1001})
	if e, ok := asType[*Error](err); !ok || e.Code != ProblemCodeInvalidRequest {
		t.Error(err)
	}
}

func FuzzNextPage(f *testing.F) {
	for _, s := range []string{
		"", `</api/cards?cursor=a&limit=2>; rel="next"`, `<?a>;rel=next`,
		`</a>; rel="prev", </b?c=1,2>; title="x, y"; REL=NEXT; a=b`,
		`<a?b>; rel="next-archive"`, `<http://[::1>; rel=next`, `<<?>>; rel="next"`,
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, header string) {
		next, err := nextPage(http.Header{"Link": {header}})
		if err != nil && next != "" {
			t.Errorf("both %q and %v", next, err)
		}
		u, err := url.Parse("https://cards.test/api/cards?" + next)
		if err != nil || u.Host != "cards.test" || u.Path != "/api/cards" {
			t.Errorf("%q: next page %v, %v", header, u, err)
		}
	})
}

func TestNextPage_ReadsEveryFormOfALink(t *testing.T) {
	for header, want := range map[string]string{
		`</api/cards?cursor=a&limit=2>; rel="next"`: "cursor=a&limit=2",
		`<?a>;rel=next`: "a",
		`</a?x>; rel="prev", </b?c=1,2>; title="x, y"; REL=NEXT; a="b"`: "c=1,2",
		`</a?x>; rel="next", </b?y>; rel="last"`:                        "x",
		`</a?x>; rel="next-archive"`:                                    "",
		`</a?x>; rel="prev"`:                                            "",
		`</a?x>`:                                                        "",
	} {
		if got, err := nextPage(http.Header{"Link": {header}}); err != nil || got != want {
			t.Errorf("%s: %q, %v, want %q", header, got, err, want)
		}
	}
}
