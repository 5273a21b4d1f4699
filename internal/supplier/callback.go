package supplier

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"time"
)

const largestCallback = 4 << 10

// CallbackPath returns where a supplier of this name sends its callbacks to.
func CallbackPath(name string) string { return "/supplier/" + name + "/callback" }

// NewCallback returns a handler for the callbacks of suppliers by POST to
// CallbackPath, whatever path it is mounted at. It answers 204 to a callback
// that is signed with one of the secrets within five minutes of now, after it
// has called wake with the key of the intent. A callback is only a hint: it may
// come twice, before the answer that it is about, or for a key that nobody
// knows. wake must not block.
//
// Nothing is remembered: repeating a callback only causes another look-up.
func NewCallback(secrets Secrets, wake func(key string), now func() time.Time) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			w.Header().Set("Allow", http.MethodPost)
			writeProblem(w, http.StatusMethodNotAllowed, ProblemCodeMalformed, "Send callbacks by POST.")
			return
		}
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, largestCallback))
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
		if _, err := object(body, &callback, "key"); err != nil || len(callback.Key) > longestKey ||
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
