package kube

import "net/http"

// createOnce makes client-go send a create once. The API server may answer that it could not do a
// create, and have it sent again. But it may have done it all the same, if only etcd did not
// answer. The second create would then meet the first one's object, and look like a create that
// has met somebody else's.
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
