package server

import (
	"testing"
)

func TestUnknownParameters_NoQuery_AllocatesNothing(t *testing.T) {
	s, err := published()
	if err != nil {
		t.Fatal(err)
	}
	declared := s.routes["GET"]["/api/cards"].Operation.Parameters
	if n := testing.AllocsPerRun(100, func() {
		if unknownParameters("", declared) != nil {
			t.Error("no parameter is unknown")
		}
	}); n != 0 {
		t.Errorf("%g allocations", n)
	}
}
