package cniname

import (
	"reflect"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/utils"
)

// compare fails t if a check of ours and the library's differ on name.
func compare(t *testing.T, name string) {
	for what, check := range map[string][2]func(string) *types.Error{
		"container ID":   {CheckContainerID, utils.ValidateContainerID},
		"network name":   {CheckNetwork, utils.ValidateNetworkName},
		"interface name": {CheckInterface, utils.ValidateInterfaceName},
	} {
		if ours, theirs := check[0](name), check[1](name); !reflect.DeepEqual(ours, theirs) {
			t.Errorf("%s %q: %+v; the CNI library has %+v", what, name, ours, theirs)
		}
	}
}

// names are of every kind, right ones and wrong ones.
var names = []string{
	"", "a", "Z9", "0", "a.b_c-d", ".a", "-a", "_a", "a/b", "a b", "ä", "a\n", "\xff", "a:b", ".", "..", "...",
	"eth0", "eth 0", "eth\u00a00", "eth\x850", "123456789012345", "1234567890123456", "äääääääää",
}

func TestNamesAreThoseOfTheCNILibrary(t *testing.T) {
	for _, name := range names {
		compare(t, name)
	}
}

func FuzzNames(f *testing.F) {
	for _, name := range names {
		f.Add(name)
	}
	f.Fuzz(compare)
}
