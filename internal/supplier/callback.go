package supplier

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"time"
)

const maxCallbackBytes = 4 << 10

// CallbackPath returns the path for the callbacks of a supplier.
func CallbackPath(name string) string { return "/supplier/" + name + "/callback" }

// NewCallback returns a handler for supplier callbacks, at any path. If a
// callback is signed with one of the secrets within five minutes of now, the
// handler calls wake with the key of the intent, and answers 204. wake must not
// block.
//
// A callback is only a hint that causes a lookup. It may arrive twice, before the
// answer to the request, or with an unknown key.
func NewCallback(secrets Secrets, wake func(key string), now func() time.Time) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			w.Header().Set("Allow", http.MethodPost)
			writeProblem(w, http.StatusMethodNotAllowed, ProblemCodeMalformed, "Send callbacks by POST.")
			return
		}
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxCallbackBytes))
		if err != nil {
			writeProblem(w, http.StatusBadRequest, ProblemCodeMalformed, "The body is cut off, or longer than 4 KiB.")
			return
		}
		if err := secrets.VerifyMessage(r.Header, body, now()); err != nil {
			writeProblem(w, http.StatusUnauthorized, ProblemCodeUnauthorized,
				strings.ToUpper(err.Error()[:1])+err.Error()[1:]+".")
			return
		}
		var callback struct {
			Key string `json:"key"`
		}
		if _, err := object(body, &callback, "key"); err != nil || len(callback.Key) > maxKeyBytes ||
			!wireKey.MatchString(callback.Key) {
			writeProblem(w, http.StatusBadRequest, ProblemCodeMalformed,
				"The body must be a JSON object with the key of a request.")
			return
		}
		wake(intentKey(callback.Key))
		w.WriteHeader(http.StatusNoContent)
	})
}

func writeProblem(w http.ResponseWriter, status int, code ProblemCode, detail string) {
	w.Header().Set("Content-Type", problemType)
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(
		Problem{Type: "about:blank", Title: http.StatusText(status), Status: int32(status), Code: code, Detail: detail})
}
