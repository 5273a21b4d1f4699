package store_test

import "testing"

// The API may read a mark while the worker of its process writes the next one,
// and get the result after that. This is not a rollback: otherwise a busy
// machine would end the epoch, reset feeds and hold the stock.
func TestAcquireLease_ConcurrentReads_KeepTheEpoch(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		worker, api := open(t, url), open(t, url)
		api.ShareDetector(worker)
		addAddresses(t, worker, 0, 3)
		epoch := mark(t, worker).Epoch
		ended, looked := make(chan struct{}), make(chan error, 4)
		for range cap(looked) {
			go func() {
				for {
					select {
					case <-ended:
						looked <- nil
						return
					default:
					}
					if _, err := api.PoolState(t.Context(), "monero"); err != nil {
						looked <- err
						return
					}
				}
			}()
		}
		for i := range 500 {
			if l := mark(t, worker); l.Epoch != epoch || l.WentBack {
				t.Errorf("mark %d: %+v", i, l)
				break
			}
		}
		close(ended)
		for range cap(looked) {
			check(t, <-looked)
		}
		state, err := api.PoolState(t.Context(), "monero")
		check(t, err)
		if state.WentBack || !state.Moving {
			t.Errorf("%+v", state)
		}
	})
}
