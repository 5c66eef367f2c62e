package assign

import (
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/ipam/labels"
	"github.com/tenure-ipam/tenure/ipam/node/store"
	"github.com/tenure-ipam/tenure/ipam/poolspec"
)

// BenchmarkHold is what an ADD chooses and writes, up to the commit, in a pool of one range, in one
// that has a subnet for each of 16,384 nodes, and in one that has a range for each of 16 racks.
func BenchmarkHold(b *testing.B) {
	whole := []poolspec.RangeText{{CIDR: "10.0.0.0/12"}}
	var racks []poolspec.RangeText
	for i := range 16 {
		selector := &labels.Selector{Labels: map[string]string{"rack": strconv.Itoa(i)}}
		racks = append(racks, poolspec.RangeText{CIDR: fmt.Sprintf("10.%d.0.0/16", i), NodeSelector: selector})
	}
	for name, text := range map[string]poolspec.PoolText{
		"plain":   {Ranges: whole},
		"subnets": {Ranges: whole, PerNode: &poolspec.PerNodeText{PrefixLength: 26, Gateway: true}},
		"racks":   {Ranges: racks},
	} {
		b.Run(name, func(b *testing.B) {
			shape, err := poolspec.ParsePool(text)
			if err != nil {
				b.Fatal(err)
			}
			shape = text.ForNode(shape, poolspec.NodeLabels{"rack": new("9")})
			st, err := store.Open(filepath.Join(b.TempDir(), "store.db"), store.Options{})
			if err != nil {
				b.Fatal(err)
			}
			defer st.Close()
			conf := &poolspec.Config{CNIVersion: "1.1.0", Name: "p", Sources: []poolspec.Source{{Pool: "p"}}}
			pools := map[string]Pool{"p": {Shape: shape, BlockBits4: 26}}
			if err := st.Update(b.Context(), func(tx *store.Tx) error {
				return allocator.NewSpace(tx.Table("p"), shape).Open(netip.MustParsePrefix("10.9.0.64/26"))
			}); err != nil {
				b.Fatal(err)
			}
			undo := errors.New("once more")
			for b.Loop() {
				slots, err := Slots(conf, pools)
				if err != nil {
					b.Fatal(err)
				}
				d := demand("c1", slots...)
				err = st.Update(b.Context(), func(tx *store.Tx) error {
					if _, err := Hold(tx, d); err != nil {
						return err
					}
					return undo
				})
				if !errors.Is(err, undo) {
					b.Fatal(err)
				}
			}
		})
	}
}
