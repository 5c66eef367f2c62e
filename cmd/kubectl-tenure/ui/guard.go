package ui

import (
	"crypto/rand"
	"crypto/subtle"
	"net"
	"net/http"
	"strings"
)

// A guard keeps a page on localhost from everybody but who was given its address: other users of
// the machine do not know the secret in the path, and pages of other sites cannot reach it.
type guard struct {
	secret string
	hosts  [2]string // what a Host header may say
	next   http.Handler
}

func newGuard(port string, next http.Handler) *guard {
	return &guard{secret: rand.Text(), hosts: [2]string{net.JoinHostPort("127.0.0.1", port), net.JoinHostPort("localhost", port)}, next: next}
}

// policy has the browser load nothing from anywhere else, run no script that the page does not
// bring, and show the page in no other.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// ServeHTTP implements [http.Handler].
func (g *guard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	for name, value := range map[string]string{
		"Content-Security-Policy": policy, "X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY", "Referrer-Policy": "no-referrer",
		"Cross-Origin-Resource-Policy": "same-origin", "Cross-Origin-Opener-Policy": "same-origin", "Cache-Control": "no-store",
	} {
		h.Set(name, value)
	}
	secret, path, ok := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	switch {
	case r.Host != g.hosts[0] && r.Host != g.hosts[1]: // a name of another site that leads to this machine
		http.Error(w, "this page answers to 127.0.0.1 and localhost alone", http.StatusMisdirectedRequest)
	case !g.own(r):
		http.Error(w, "a page of another site may not ask here", http.StatusForbidden)
	case !ok || subtle.ConstantTimeCompare([]byte(secret), []byte(g.secret)) != 1:
		http.Error(w, "open the whole address that kubectl tenure ui has printed", http.StatusNotFound)
	case r.Method != http.MethodGet:
		h.Set("Allow", http.MethodGet)
		http.Error(w, "this page is only read", http.StatusMethodNotAllowed)
	default:
		r.URL.Path = "/" + path
		g.next.ServeHTTP(w, r)
	}
}

// own reports whether the page itself asks, or a person who typed its address. Browsers say which
// site a request is from; a program that is none says nothing.
func (g *guard) own(r *http.Request) bool {
	if origin := r.Header.Get("Origin"); origin != "" && origin != "http://"+g.hosts[0] && origin != "http://"+g.hosts[1] {
		return false
	}
	switch r.Header.Get("Sec-Fetch-Site") {
	case "", "none", "same-origin":
		return true
	}
	// A link on another page may open this one; it sees nothing of it.
	return r.Header.Get("Sec-Fetch-Mode") == "navigate" && r.Header.Get("Sec-Fetch-Dest") == "document"
}
