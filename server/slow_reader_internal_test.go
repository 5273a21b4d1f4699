package server

import (
	"errors"
	"net/http/httptest"
	"os"
	"testing"
	"testing/synctest"
	"time"
)

// slowClient reads perSecond bytes of a response per second.
type slowClient struct {
	*httptest.ResponseRecorder
	perSecond int
	stall     time.Duration // before the next write, once
	deadline  time.Time
}

func (c *slowClient) extend(d time.Duration) error {
	c.deadline = time.Now().Add(d)
	return nil
}

func (c *slowClient) Write(b []byte) (int, error) {
	takes := c.stall + time.Duration(len(b))*time.Second/time.Duration(c.perSecond)
	c.stall = 0
	if left := time.Until(c.deadline); takes > left {
		time.Sleep(max(left, 0))
		return 0, os.ErrDeadlineExceeded
	}
	time.Sleep(takes)
	return len(b), nil
}

// sendTo sends buffers of a list, and returns the duration and the error.
func sendTo(c *slowClient, buffers int) (time.Duration, error) {
	w, began := newMinRateWriter(c, c.extend), time.Now()
	for range buffers {
		if _, err := w.Write(make([]byte, listBuffer)); err != nil {
			return time.Since(began), err
		}
	}
	return time.Since(began), nil
}

func TestMinRateWriter_ClientAtMinThroughput_GetsAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &slowClient{perSecond: minThroughput, stall: writeTimeout - listBuffer*time.Second/minThroughput}
		if took, err := sendTo(c, 1000); err != nil {
			t.Errorf("cut off after %s: %v", took, err)
		}
	})
}

func TestMinRateWriter_ClientBelowMinThroughput_IsAborted(t *testing.T) {
	for _, perSecond := range []int{1, 1 << 10, minThroughput / 2} {
		synctest.Test(t, func(t *testing.T) {
			took, err := sendTo(&slowClient{perSecond: perSecond}, 1000)
			if !errors.Is(err, os.ErrDeadlineExceeded) || took > 2*writeTimeout {
				t.Errorf("%d bytes per second: after %s: %v", perSecond, took, err)
			}
		})
	}
}

func TestMinRateWriter_FastClient_SavesNoTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &slowClient{perSecond: 100 << 20}
		w := newMinRateWriter(c, c.extend)
		for range 1000 {
			if _, err := w.Write(make([]byte, listBuffer)); err != nil {
				t.Fatal(err)
			}
		}
		c.perSecond = minThroughput / 2
		began := time.Now()
		for err := error(nil); err == nil; {
			_, err = w.Write(make([]byte, listBuffer))
		}
		if took := time.Since(began); took > 2*writeTimeout {
			t.Errorf("cut off only after %s", took)
		}
	})
}
