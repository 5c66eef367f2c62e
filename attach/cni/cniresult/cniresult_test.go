package cniresult

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/types/create"

	"github.com/tenure-ipam/tenure/ipam/lean/plainjson"
)

// plains are results that this package reads by itself, odd ones those that it
// leaves to the library.
var (
	plains = []string{
		`{"cniVersion":"1.1.0"}`,
		`{"cniVersion":"1.0.0","interfaces":[],"ips":[],"routes":[],"dns":{}}`,
		`{"cniVersion":"1.1.0","interfaces":[{"name":"veth"},{"name":"eth0","mac":"02:00:00:00:00:01","mtu":1500,"sandbox":"/run/netns/x","socketPath":"/s","pciID":"0000:00:1f.6"}],` +
			`"ips":[{"address":"10.0.0.5/24","gateway":"10.0.0.1","interface":1},{"address":"2001:db8::5/64","interface":0},{"address":"::ffff:10.0.0.7/120","gateway":""}],` +
			`"routes":[{"dst":"::/0","gw":"2001:db8::1","mtu":1400,"advmss":1360,"priority":7,"table":0,"scope":253},{"dst":"0.0.0.0/0"}],` +
			`"dns":{"nameservers":["10.0.0.53"],"domain":"d","search":["a","b"],"options":["ndots:5"]}}`,
		`{"ips":[{"address":"10.0.0.5/24"}],"cniVersion":"1.0.0","interfaces":[{"name":"größe \"<&>\" \u00e4","sandbox":""}]}`,
		" {\n \"cniVersion\" : \"1.0.0\" ,\r\n\t\"ips\" : [ { \"address\" : \"10.0.0.5/24\" } ] } ",
	}
	odd = []string{
		`{"cniVersion":"1.0.0","ips":[null]}`, `{"cniVersion":"1.0.0","interfaces":[null]}`, `{"cniVersion":"1.0.0","routes":[null]}`,
		`{"cniVersion":"1.0.0","ips":null,"dns":null}`, `{"cniVersion":"1.0.0","IPs":[{"Address":"10.0.0.5/24"}]}`,
		`{"cniVersion":"1.0.0","ips":[{"address":"10.0.0.5"}]}`, `{"cniVersion":"1.0.0","ips":[{"address":"10.0.0.5/24","gateway":"x"}]}`,
		`{"cniVersion":"1.0.0","ips":[{}]}`, `{"cniVersion":"1.0.0","routes":[{}]}`, `{"cniVersion":"1.0.0","dns":{"domain":"a"},"dns":{"search":["b"]}}`,
		`{"cniVersion":"1.0.0","interfaces":[{"name":"a","name":"b","mtu":1e3}]}`, `{"cniVersion":"1.0.0","of-others":1}`,
		`{"cniVersion":"1.0.0","interfaces":{}}`, `{"cniVersion":"1.0.0","dns":[]}`, `{"cniVersion":1}`, `{}`, `{"cniVersion":"1.1.0","ips":[{"address":5}]}`,
		`{"cniVersion":"0.4.0","ips":[{"version":"4","address":"10.0.0.5/24"}]}`, `{"cniVersion":"0.2.0","ip4":{"ip":"10.0.0.5/24"}}`,
	}
)

// TestPlainResultsAreReadHere: else this package would be of no use.
func TestPlainResultsAreReadHere(t *testing.T) {
	for _, text := range plains {
		if _, ok := plain(plainjson.Trim([]byte(text))); !ok {
			t.Errorf("%s is left to the library", text)
		}
	}
	for _, text := range odd {
		// One without an address is read; what cannot be written is the library's to say.
		if r, ok := plain(plainjson.Trim([]byte(text))); ok && writable(r) && strings.HasPrefix(r.CNIVersion, "1.") {
			t.Errorf("%s is not left to the library", text)
		}
	}
}

// FuzzAsTheLibrary: what is read, and what is written of it, is what the library
// reads and writes.
func FuzzAsTheLibrary(f *testing.F) {
	for _, text := range append(append([]string{}, plains...), odd...) {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if !json.Valid(text) || plainjson.Trim(text)[0] != '{' {
			return
		}
		raw := plainjson.Trim(text)
		for _, v := range []string{"1.1.0", "1.0.0", "0.4.0"} {
			want, wantErr := create.Create(v, raw)
			got, err := Parse(v, raw)
			if (err == nil) != (wantErr == nil) {
				t.Fatalf("in %s: error %v; the library's is %v", v, err, wantErr)
			}
			if err != nil {
				continue
			}
			if !reflect.DeepEqual(got, want) {
				t.Fatalf("in %s: read as %+v; the library reads %+v", v, got, want)
			}
			sameText(t, got)
		}
	})
}

// sameText compares what is written of a result with what the library writes.
func sameText(t *testing.T, r interface{ Version() string }) {
	t.Helper()
	full, ok := r.(*types100.Result)
	if !ok || !exact(full) {
		return
	}
	want, wantErr := json.Marshal(full)
	got, err := Text(full)
	if (err == nil) != (wantErr == nil) {
		t.Fatalf("error %v; the library's is %v", err, wantErr)
	}
	if err != nil {
		return
	}
	if !reflect.DeepEqual(general(t, got), general(t, want)) || bytes.ContainsAny(got, "\r\n") {
		t.Fatalf("written as %s; the library writes %s", got, want)
	}
	var out bytes.Buffer
	if err := Print(&out, full); err != nil || !reflect.DeepEqual(general(t, out.Bytes()), general(t, want)) {
		t.Fatalf("printed as %s: %v; the library writes %s", out.Bytes(), err, want)
	}
}

// exact reports whether the numbers of a result survive the library: it writes them
// by way of floating point.
func exact(r *types100.Result) bool {
	const most = 1 << 20
	for _, i := range r.Interfaces {
		if i != nil && (i.Mtu > most || i.Mtu < -most) {
			return false
		}
	}
	for _, ip := range r.IPs {
		if ip != nil && ip.Interface != nil && (*ip.Interface > most || *ip.Interface < -most) {
			return false
		}
	}
	for _, to := range r.Routes {
		if to == nil {
			continue
		}
		for _, n := range []*int{&to.MTU, &to.AdvMSS, &to.Priority, to.Table, to.Scope} {
			if n != nil && (*n > most || *n < -most) {
				return false
			}
		}
	}
	return true
}

func general(t *testing.T, text []byte) (v any) {
	t.Helper()
	if err := json.Unmarshal(text, &v); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return v
}
