package main

import (
	"context"
	"fmt"
)

func (d *demo) staticScene() scene {
	return scene{
		"An address asked for by name",
		"A selection may say which address it wants. It gets exactly that one, or an error that says why not. The pool keeps " + staticRange +
			" for those who ask.",
		d.playStatic,
	}
}

func (d *demo) playStatic(ctx context.Context) error {
	const wanted = "10.77.200.10/16"
	ask := selections{{Name: networkName, IPs: []string{wanted}}}
	printer, err := d.run(ctx, d.nodeA, "printer", ask)
	if err != nil {
		return err
	}
	d.screen.annotation(printer.name, printer.sel)
	d.showPods(printer)
	if texts(printer.addrs) != wanted {
		return fmt.Errorf("printer has %v; want %s", printer.addrs, wanted)
	}
	if _, err := d.pingAll(ctx, d.pods, []*pod{printer}); err != nil {
		return err
	}
	d.screen.ok("The pod has the address that it asked for, and nothing else. The other pods reach it.")
	for _, refused := range []struct {
		node      *node
		name, ip  string
		because   []string
		otherwise string
	}{
		{d.nodeB, "printer-2", wanted, []string{"10.77.200.10", "node-a"}, "The same address again, on the other node: refused."},
		{d.nodeB, "router", gateway, []string{gateway, "gateway"}, "The gateway's address: refused."},
	} {
		p, err := d.create(ctx, refused.node, refused.name, selections{{Name: networkName, IPs: []string{refused.ip}}})
		if err != nil {
			return err
		}
		if err := d.refuse(ctx, p, refused.because...); err != nil {
			return err
		}
		d.screen.ok("%s", refused.otherwise)
		if err := d.forget(ctx, p); err != nil {
			return err
		}
	}
	return nil
}
