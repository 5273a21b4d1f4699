package server_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"
)

const maxBody = 64 << 10

func TestCreateCard_BodyTooLarge_IsRefused(t *testing.T) {
	t.Parallel()
	d := deploy(t, setup{})
	token := d.token(t)
	padded := func(n int) string { return orderBody("50") + strings.Repeat(" ", n-len(orderBody("50"))) }

	t.Run("64 KiB are allowed", func(t *testing.T) {
		d.send(t, http.MethodPost, "/api/cards", token, padded(maxBody)).want(t, http.StatusCreated)
	})
	for name, n := range map[string]int{"one byte more": maxBody + 1, "a megabyte": 1 << 20} {
		t.Run(name, func(t *testing.T) {
			a := d.send(t, http.MethodPost, "/api/cards", token, padded(n))
			a.refused(t, http.StatusRequestEntityTooLarge, "body_too_large")
		})
		t.Run(name+", without a length", func(t *testing.T) {
			body := padded(n)
			text := fmt.Sprintf(
				"POST /api/cards HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\n"+
					"Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", token, len(body), body)
			d.speak(t, d.address(), text).refused(t, http.StatusRequestEntityTooLarge, "body_too_large")
		})
	}
}

func TestCreateCard_EndlessBody_IsAborted(t *testing.T) {
	t.Parallel()
	d := deploy(t, setup{})
	head := "POST /api/cards HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + d.token(t) +
		"\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
	conn := dial(t, d.address())
	_, err := io.WriteString(conn, head)
	need(t, err)
	sent := make(chan int)
	go func() {
		n, chunk := 0, "400\r\n"+strings.Repeat(" ", 0x400)+"\r\n"
		for err := error(nil); err == nil; n += len(chunk) {
			_, err = io.WriteString(conn, chunk)
		}
		sent <- n
	}()
	a := readResponse(t, conn, head)
	a.refused(t, http.StatusRequestEntityTooLarge, "body_too_large")
	if !a.closed {
		t.Error("the connection stays open although the rest of the body is not read")
	}
	// The writer fails because the service closes the connection; until then it
	// has filled the kernel's buffers.
	if n := <-sent; n > 32<<20 {
		t.Errorf("the service read %d bytes", n)
	}
}

func TestCreateCard_OtherMediaType_IsRefused(t *testing.T) {
	t.Parallel()
	d := deploy(t, setup{})
	token := d.token(t)
	for _, kind := range []string{
		"application/json", "Application/JSON", "application/json; charset=utf-8", `application/json;charset="UTF-8"`,
		absent, "",
	} {
		t.Run(fmt.Sprintf("taken: %q", kind), func(t *testing.T) {
			d.send(t, http.MethodPost, "/api/cards", token, orderBody("50"), "Content-Type", kind).want(t, http.StatusCreated)
		})
	}
	for _, headers := range [][]string{
		{"Content-Type", "text/plain"},
		{"Content-Type", "text/json"},
		{"Content-Type", "application/jsonp"},
		{"Content-Type", "application/x-www-form-urlencoded"},
		{"Content-Type", "multipart/form-data; boundary=x"},
		{"Content-Type", "application/problem+json"},
		{"Content-Type", "application/*"},
		{"Content-Type", "*/*"},
		{"Content-Type", "json"},
		{"Content-Type", "application/json, text/plain"},
		{"Content-Type", "application/json; charset=latin1"},
		{"Content-Type", "application/json; charset=utf-16"},
		{"Content-Type", "application/json; charset=utf-8; charset=utf-16"},
		{"Content-Type", "application/json; ="},
		{"Content-Encoding", "gzip"},
		{"Content-Encoding", "br"},
		{"Content-Encoding", "deflate, gzip"},
	} {
		t.Run(fmt.Sprintf("refused: %q", headers), func(t *testing.T) {
			d.send(t, http.MethodPost, "/api/cards", token, orderBody("50"), headers...).refused(t,
				http.StatusUnsupportedMediaType, "unsupported_media_type")
		})
	}
}

// An unauthenticated client must not make the service read, parse or store
// anything.
func TestAuthentication_RunsBeforeBodyIsRead(t *testing.T) {
	t.Parallel()
	d := deploy(t, setup{})
	for name, head := range map[string]string{
		"a megabyte that is never sent":          "Content-Type: application/json\r\nContent-Length: 1048576\r\n\r\n",
		"a megabyte that waits to be asked for":  "Content-Type: application/json\r\nContent-Length: 1048576\r\nExpect: 100-continue\r\n\r\n",
		"chunks that are never sent":             "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n",
		"a body that would be malformed":         "Content-Type: application/json\r\nContent-Length: 1\r\n\r\n{",
		"a body of a type that would be refused": "Content-Type: text/plain\r\nContent-Length: 1\r\n\r\nx",
		"a key that would be refused":            "Idempotency-Key: a b\r\nContent-Length: 0\r\n\r\n",
	} {
		for _, path := range []string{"/api/cards", "/api/sandbox/cards/not-a-uuid/payments"} {
			t.Run(name+" to "+path, func(t *testing.T) {
				text := "POST " + path + " HTTP/1.1\r\nHost: x\r\n" + head
				// readResponse returns the first response, which may be 100
				// Continue.
				d.speak(t, d.address(), text).refused(t, http.StatusUnauthorized, "unauthorized")
			})
		}
	}
}

// A client sends Expect: 100-continue, and gets 100 Continue.
func TestCreateCard_ExpectContinue(t *testing.T) {
	t.Parallel()
	d := deploy(t, setup{})
	conn := dial(t, d.address())
	_, err := fmt.Fprintf(conn,
		"POST /api/cards HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\n"+
			"Content-Length: %d\r\nExpect: 100-continue\r\n\r\n", d.token(t), len(orderBody("50")))
	need(t, err)
	read := bufio.NewReader(conn)
	line, err := read.ReadString('\n')
	need(t, err)
	equal(t, "first line", line, "HTTP/1.1 100 Continue\r\n")
	_, err = read.ReadString('\n')
	need(t, err)
	_, err = io.WriteString(conn, orderBody("50"))
	need(t, err)
	res, err := http.ReadResponse(read, nil)
	need(t, err)
	equal(t, "status", res.StatusCode, http.StatusCreated)
}

func TestServe_StalledBody_TimesOut(t *testing.T) {
	t.Parallel()
	d := deploy(t, setup{})
	// The read deadline of 15 seconds expires immediately.
	l := listen(t, func(left time.Duration) time.Duration {
		if left > 10*time.Second {
			return time.Millisecond
		}
		return left
	})
	serveOn(t, l, d.handler)
	for name, body := range map[string]string{
		"with a length":    "Content-Length: 100\r\n\r\n{\"usd_amount\"",
		"without a length": "Transfer-Encoding: chunked\r\n\r\nd\r\n{\"usd_amount\"\r\n",
		"before it begins": "Content-Length: 100\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			a := d.speak(t, l.Addr().String(), "POST /api/cards HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer "+d.token(t)+
				"\r\nContent-Type: application/json\r\n"+body)
			a.refused(t, http.StatusRequestTimeout, "request_timeout")
			if !a.closed {
				t.Error("the connection stays open although the rest of the body may still arrive")
			}
		})
	}
}

func TestServe_HalfOpenConnections_DoNotBlockOthers(t *testing.T) {
	t.Parallel()
	d := deploy(t, setup{})
	// The header deadline of 5 seconds expires immediately.
	l := listen(t, func(left time.Duration) time.Duration {
		if 0 < left && left < 10*time.Second {
			return 100 * time.Millisecond
		}
		return left
	})
	serveOn(t, l, d.handler)
	var slow []net.Conn
	for range 200 {
		conn := dial(t, l.Addr().String())
		_, err := io.WriteString(conn, "GET /livez HTTP/1.1\r\nHost: x\r\nX-Slow: ")
		need(t, err)
		slow = append(slow, conn)
	}
	d.speak(t, l.Addr().String(), "GET /livez HTTP/1.1\r\nHost: x\r\n\r\n").want(t, http.StatusOK)
	for _, conn := range slow {
		need(t, conn.SetDeadline(time.Now().Add(5*time.Second))) // less than the deadline of a whole request
		// The server resets a connection that it closes before it has read
		// everything.
		if _, err := io.Copy(io.Discard, conn); err != nil && !errors.Is(err, syscall.ECONNRESET) {
			t.Fatalf("a half-open connection is not closed: %v", err)
		}
	}
}

// A broken connection is not a malformed document, and has no effect.
func TestCreateCard_TruncatedBody_CreatesNoCard(t *testing.T) {
	t.Parallel()
	d := deploy(t, setup{})
	token := d.token(t)
	conn := dial(t, d.address())
	_, err := fmt.Fprintf(conn,
		"POST /api/cards HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\n"+
			"Content-Length: %d\r\n\r\n%s", token, len(orderBody("50"))+1, orderBody("50"))
	need(t, err)
	need(t, conn.(*net.TCPConn).CloseWrite())
	readResponse(t, conn, "POST /api/cards HTTP/1.1").refused(t, http.StatusBadRequest, "malformed_json")
	equal(t, "cards", count(t, d.client(t, token)), 0)
}
