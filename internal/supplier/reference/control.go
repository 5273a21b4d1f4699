package reference

import (
	"encoding/json"
	"net/http"
)

// Control returns a handler that controls the server, for tests in another
// process. It must be reachable only from this machine.
//
//	PUT /behaviour ["slow=0.25", "ambiguous=1x"] replaces the rules.
//	GET /behaviour returns the rules that are not used up.
//	GET /ledger returns the ledger.
func (s *Server) Control() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /behaviour", func(w http.ResponseWriter, _ *http.Request) {
		texts := []string{}
		for _, rule := range s.rules.list() {
			texts = append(texts, rule.String())
		}
		writeJSON(w, texts)
	})
	mux.HandleFunc("PUT /behaviour", func(w http.ResponseWriter, r *http.Request) {
		var texts []string
		if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody)).Decode(&texts); err != nil {
			writeFault(w,
				&fault{http.StatusBadRequest, ProblemCodeMalformed, `Send a list of rules, such as ["slow=0.25", "ambiguous=1x"].`})
			return
		}
		var rules []Rule
		for _, text := range texts {
			rule, err := ParseRule(text)
			if err != nil {
				writeFault(w, &fault{http.StatusBadRequest, ProblemCodeMalformed, err.Error()})
				return
			}
			rules = append(rules, rule)
		}
		s.Behave(rules...)
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("GET /ledger", func(w http.ResponseWriter, r *http.Request) {
		all, err := s.Ledger(r.Context())
		if err != nil {
			writeFault(w, &fault{http.StatusInternalServerError, ProblemCodeInternal, "The ledger can't be read."})
			return
		}
		writeJSON(w, all)
	})
	return mux
}

func writeJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v)
}
