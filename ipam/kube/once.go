package kube

import "net/http"

// createOnce hides from client-go that the API server, which could not do a create,
// would have it sent again: it does not know either whether it has done it after all,
// as where etcd has not answered it. Sent again, it would meet an object of its own, and
// its answer would be that of a create that has met another's.
type createOnce struct{ http.RoundTripper }

// RoundTrip implements [http.RoundTripper].
func (c createOnce) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := c.RoundTripper.RoundTrip(req)
	if resp != nil && req.Method == http.MethodPost && resp.StatusCode >= http.StatusInternalServerError {
		resp.Header.Del("Retry-After")
	}
	return resp, err
}

// WrappedRoundTripper has client-go find the transport beneath.
func (c createOnce) WrappedRoundTripper() http.RoundTripper { return c.RoundTripper }
