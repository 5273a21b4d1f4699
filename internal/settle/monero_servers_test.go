package settle_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
)

// edited returns the URL of a proxy that edits a server's results, to produce
// results that a real server can't be made to return.
func edited(t *testing.T, target string, edit func(method string, result map[string]any)) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := editAnswer(r.Context(), w, r.Body, target, edit); err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
		}
	}))
	t.Cleanup(server.Close)
	return server.URL
}

func editAnswer(ctx context.Context, w io.Writer, body io.Reader, target string,
	edit func(string, map[string]any)) error {
	request, err := io.ReadAll(body)
	if err != nil {
		return err
	}
	var asked struct{ Method string }
	if err := json.Unmarshal(request, &asked); err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, target+"/json_rpc", bytes.NewReader(request))
	if err != nil {
		return err
	}
	req.Close = true
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	var answer map[string]any
	numbers := json.NewDecoder(res.Body)
	numbers.UseNumber()
	if err := numbers.Decode(&answer); err != nil {
		return err
	}
	if result, ok := answer["result"].(map[string]any); ok {
		edit(asked.Method, result)
	}
	return json.NewEncoder(w).Encode(answer)
}
