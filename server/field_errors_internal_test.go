package server

import (
	"net/http"
	"net/http/httptest"
	"regexp"
	"testing"

	"github.com/gin-gonic/gin"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/openapi"
)

// Details describe the required text in words, not by a regular expression.
func TestPatternDetails_CoverContract(t *testing.T) {
	patterns := regexp.MustCompile(`pattern: '([^']+)'`).FindAllStringSubmatch(string(openapi.YAML), -1)
	if len(patterns) < 5 {
		t.Fatalf("only %d patterns were found", len(patterns))
	}
	for _, p := range patterns {
		if patternDetails[p[1]] == "" {
			t.Errorf("pattern %s has no detail", p[1])
		}
	}
}

func TestParameterErrors_KeyWithSpace_IsExplained(t *testing.T) {
	s, err := published()
	if err != nil {
		t.Fatal(err)
	}
	c, _ := gin.CreateTestContext(httptest.NewRecorder())
	c.Request = httptest.NewRequest(http.MethodPost, "/api/cards", nil)
	c.Request.Header.Set("Idempotency-Key", "order 4711")
	faults := s.validation.parameterErrors(c, s.routes[http.MethodPost]["/api/cards"])
	want := card.FieldError{Pointer: "header/Idempotency-Key",
		Detail: "must have only visible ASCII characters, and no spaces"}
	if len(faults) != 1 || faults[0] != want {
		t.Errorf("errors %+v, want %+v", faults, want)
	}
}
