package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
)

// devState tells other commands of the same user how to call a running
// 'cardmint dev'.
type devState struct {
	URL   string `json:"url"`
	Token string `json:"token"`
	PID   int    `json:"pid"`
}

// devStatePath follows the XDG base directory specification.
func devStatePath() (string, error) {
	dir := os.Getenv("XDG_STATE_HOME")
	if !filepath.IsAbs(dir) { // the specification ignores relative paths
		home, err := os.UserHomeDir()
		if err != nil {
			return "", err
		}
		dir = filepath.Join(home, ".local", "state")
	}
	return filepath.Join(dir, "cardmint", "dev.json"), nil
}

// readDevState returns the state of the 'cardmint dev' that was started last.
func readDevState() (s devState, err error) {
	path, err := devStatePath()
	if err != nil {
		return s, err
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return s, err
	}
	return s, json.Unmarshal(text, &s)
}

// write stores the state in a file that only this user can read. The function
// that it returns removes the file, unless another process has replaced it.
func (s devState) write() (remove func(), err error) {
	path, err := devStatePath()
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	file, err := os.CreateTemp(filepath.Dir(path), "dev-*") // with mode 0600
	if err != nil {
		return nil, err
	}
	_, err = file.Write(text)
	if closing := file.Close(); err == nil {
		err = closing
	}
	if err == nil {
		err = os.Rename(file.Name(), path)
	}
	if err != nil {
		_ = os.Remove(file.Name())
		return nil, err
	}
	return func() {
		if now, err := os.ReadFile(path); err == nil && string(now) == string(text) {
			_ = os.Remove(path)
		}
	}, nil
}
