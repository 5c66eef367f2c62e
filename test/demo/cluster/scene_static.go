package main

import (
	"context"
)

func (d *demo) playStatic(ctx context.Context) {
	const wanted = "10.77.200.10/16"
	ask := selections{{Name: networkName, IPs: []string{wanted}}}
	printer := d.run(ctx, d.nodeA, "printer", ask)
	d.annotation(printer.name, printer.sel)
	d.showPods(printer)
	if len(printer.addrs) != 2 || printer.addrs[0].String() != wanted || !printer.addrs[1].Addr().Is6() {
		d.Fail("printer has %v; want %s and any IPv6 address", printer.addrs, wanted)
	}
	d.pingAll(ctx, d.pods, []*pod{printer})
	d.OK("The pod has the address that it asked for, and any address of the other family. The other pods reach it.")
	for _, refused := range []struct {
		node      *node
		name, ip  string
		because   []string
		otherwise string
	}{
		{d.nodeB, "printer-2", wanted, []string{"10.77.200.10", "node-a"}, "The same address again, on the other node: refused."},
		{d.nodeB, "router", gateway, []string{gateway, "gateway"}, "The gateway's address: refused."},
	} {
		p := d.create(ctx, refused.node, refused.name, selections{{Name: networkName, IPs: []string{refused.ip}}})
		d.refuse(ctx, p, refused.because...)
		d.OK("%s", refused.otherwise)
		d.forget(ctx, p)
	}
}
