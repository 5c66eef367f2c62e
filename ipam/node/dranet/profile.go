package dranet

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/netip"
	"strings"

	"github.com/tenure-ipam/tenure/ipam/agentapi"
	"github.com/tenure-ipam/tenure/ipam/node/agent"
	"github.com/tenure-ipam/tenure/ipam/poolspec"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// ofPools stands before the name of a pool in a profile.
const ofPools = "tenure.dev"

// profile gives a device the addresses that its profile asks for.
func (s *Server) profile(ctx context.Context, req Request) (any, error) {
	if req.Config == nil {
		return nil, refuse(http.StatusBadRequest, "config is missing: give the device's NetworkConfig with its profile")
	}
	scope, name, ok := strings.Cut(req.Config.Profile, "/")
	if !ok || scope == "" || !isName(scope) || name == "" || !isName(name) {
		return nil, refuse(http.StatusNotFound, "profile %q is none of Tenure's: write tenure.dev/<pool>, or <namespace>/<name> of a NetworkAttachmentDefinition", req.Config.Profile)
	}
	if req.Config.Interface.DHCP != nil && *req.Config.Interface.DHCP {
		return nil, refuse(http.StatusBadRequest, "interface.dhcp is true beside profile %s, which gives addresses: leave one of them out", req.Config.Profile)
	}
	d, err := s.device(ctx, req)
	if err != nil {
		return nil, err
	}
	text := string(poolspec.PoolConfig(name))
	if scope != ofPools {
		if text, err = s.definition(ctx, scope, name, d); err != nil {
			return nil, err
		}
	}
	conf, err := poolspec.ParseDevice([]byte(text), name, req.Config.Interface.Addresses)
	switch {
	case err != nil:
		return nil, refuse(http.StatusBadRequest, "profile %s: %v", req.Config.Profile, err)
	case conf == nil:
		return nil, refuse(http.StatusBadRequest, `profile %s: no plugin of the definition has "ipam": {"type": "tenure", …}: name a definition with addresses of Tenure`, req.Config.Profile)
	case conf.Mode == poolspec.ModeLocal:
		return nil, refuse(http.StatusBadRequest, "profile %s: the definition is in local mode, of which no agent knows: name one in cluster mode", req.Config.Profile)
	}
	res, err := s.Devices.HoldDevice(ctx, d, conf)
	if err != nil {
		return nil, err
	}
	return configOf(res, mtuOf([]byte(text))), nil
}

// device returns whose device is asked about. What has addresses is known without the cluster.
func (s *Server) device(ctx context.Context, req Request) (agent.Device, error) {
	known, ok, err := s.Devices.KnownDevice(ctx, protocol.UID(req.ClaimUID), req.Device.Name)
	if err != nil {
		return agent.Device{}, err
	}
	if ok {
		var end context.CancelFunc
		ctx, end = s.Sched.WithTimeout(ctx, answerWithin/4, errLate)
		defer end()
	}
	d, err := s.Cluster.FindResourceClaim(ctx, protocol.UID(req.ClaimUID))
	switch {
	case err == nil && !ok:
		d.Name = req.Device.Name
		return d, nil
	case err == nil: // a later pod may have it; the claim of its addresses it keeps
		known.Pod = d.Pod
	case !ok:
		return agent.Device{}, err
	}
	return known, nil
}

// definition returns the configuration of a definition that the pod of d may use.
func (s *Server) definition(ctx context.Context, namespace, name string, d agent.Device) (string, error) {
	text, why, err := s.Cluster.Definition(ctx, namespace, name, d.Pod.Namespace)
	switch {
	case errors.Is(err, ErrNoDefinition):
		return "", refuse(http.StatusNotFound, "profile %s/%s: there is no NetworkAttachmentDefinition %s in namespace %s", namespace, name, name, namespace)
	case err != nil:
		return "", err
	case why != "":
		return "", refuse(http.StatusBadRequest, "profile %s/%s may not be used by ResourceClaim %s: %s", namespace, name, d.Claim, why)
	}
	return text, nil
}

// configOf returns an answer in DRANET's words. mtu is 0 where nothing is said of it.
func configOf(res *agentapi.Result, mtu int32) NetworkConfig {
	var c NetworkConfig
	if mtu > 0 {
		c.Interface.MTU = &mtu
	}
	for _, ip := range res.IPs {
		c.Interface.Addresses = append(c.Interface.Addresses, ip.Address.String())
	}
	for _, r := range res.Routes {
		out := Route{Destination: r.Dst.String()}
		if r.Table != nil {
			out.Table = *r.Table
		}
		gw := r.GW
		if linked := r.Scope != nil && *r.Scope == scopeLink; !linked && !gw.IsValid() {
			gw = gatewayFor(res.IPs, r.Dst)
		}
		if gw.IsValid() {
			out.Gateway = gw.String()
		} else {
			out.Scope = scopeLink
		}
		c.Routes = append(c.Routes, out)
	}
	return c
}

// gatewayFor returns the gateway of the first address of dst's family, as plugins take it for a
// route that names none.
func gatewayFor(ips []agentapi.IP, dst netip.Prefix) netip.Addr {
	for _, ip := range ips {
		if ip.Address.Addr().Is4() == dst.Addr().Is4() {
			return ip.Gateway
		}
	}
	return netip.Addr{}
}

// mtuOf returns the MTU that a configuration asks for, of the plugin with Tenure's addresses; 0
// where it says nothing.
func mtuOf(text []byte) int32 {
	type plugin struct {
		MTU  int32 `json:"mtu"`
		IPAM struct {
			Type string `json:"type"`
		} `json:"ipam"`
	}
	var list struct {
		plugin
		Plugins []plugin `json:"plugins"`
	}
	if json.Unmarshal(text, &list) != nil { // then nothing of it is sure
		return 0
	}
	for _, p := range list.Plugins {
		if p.IPAM.Type == poolspec.Type {
			return p.MTU
		}
	}
	return list.MTU
}
