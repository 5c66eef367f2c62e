package delegate

import (
	"fmt"

	"github.com/tenure-ipam/tenure/attach/cni/segment"
)

// announce has the neighbours hear of the attachments' addresses, while the caller does something
// else. The caller calls wait at last. That it fails is no failure of the attachments: neighbours
// then find the pod when their own entries end.
func (a *attaching) announce() (wait func()) {
	if a.Plan.Moving {
		return func() {}
	}
	var all []segment.Address
	for i := range a.done {
		all = append(all, a.addresses(i)...)
	}
	if len(all) == 0 {
		return func() {}
	}
	ended := make(chan error, 1)
	go func() { ended <- segment.Announce(a.Netns, all) }()
	return func() {
		if err := <-ended; err != nil {
			fmt.Fprintf(a.Stderr, "tenure-attach: container %s: neighbours that have an older entry find the pod late: %s\n", a.ContainerID, oneLine(err))
		}
	}
}

// addresses returns the addresses that a step has given to interfaces of the pod.
func (a *attaching) addresses(step int) (all []segment.Address) {
	r := a.done[step].full
	for _, ip := range r.IPs {
		ifName := a.Plan.Steps[step].IfName
		if i := ip.Interface; i != nil && *i >= 0 && *i < len(r.Interfaces) {
			if r.Interfaces[*i].Sandbox == "" { // the host's
				continue
			}
			ifName = r.Interfaces[*i].Name
		}
		if x := addr(ip.Address.IP); x.IsValid() {
			all = append(all, segment.Address{IfName: ifName, Addr: x})
		}
	}
	return all
}
