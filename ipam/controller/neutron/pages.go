package neutron

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/gophercloud/gophercloud/v2"
)

// page is how many objects are asked for in one request. The server may give fewer.
const page = 500

// pages returns the objects of a kind, such as ports, that q selects, page by page. Where the last
// object of a page is deleted before the next page is asked for, Neutron does not know where that
// begins: then all is listed again, as often as a request may be made again.
func pages[T any](ctx context.Context, b *budget, op, kind string, q url.Values, id func(T) string) (all []T, err error) {
	q.Set("sort_key", "id")
	q.Set("sort_dir", "asc")
	q.Set("limit", strconv.Itoa(page))
	for more := true; more; {
		var found []T
		err := b.repeat(ctx, op, func(ctx context.Context, s *gophercloud.ServiceClient) error {
			var answer map[string]json.RawMessage
			resp, err := s.Get(ctx, s.ServiceURL(kind)+"?"+q.Encode(), &answer, &gophercloud.RequestOpts{OkCodes: []int{http.StatusOK}})
			if err != nil {
				return err
			}
			resp.Body.Close()
			// The link itself is not followed: behind a proxy it may lead elsewhere.
			more = strings.Contains(string(answer[kind+"_links"]), `"next"`)
			found = nil
			return json.Unmarshal(answer[kind], &found)
		})
		switch {
		case reasonOf(err) == NotFound && q.Has("marker") && b.retries > 0:
			b.retries--
			q.Del("marker")
			all, more = nil, true
		case err != nil:
			return nil, err
		case len(found) == 0:
			return all, nil
		default:
			all = append(all, found...)
			q.Set("marker", id(found[len(found)-1]))
		}
	}
	return all, nil
}
