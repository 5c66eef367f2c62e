package simulation_test

import "testing"

// TestModelFindsFaults switches one bug on at a time. A model that a bug passes
// proves nothing: each must be found within so many seeds. M numbers are those of
// the list of faults that a simulation of the protocol must catch.
func TestModelFindsFaults(t *testing.T) {
	tests := []struct {
		name   string
		fault  fault
		within uint64
	}{
		{"M1 a plain read brings back what was given away", faultUnreleaseOnRead, 200},
		{"M2 releasing in memory alone", faultReleasingInMemory, 200},
		{"M3 forget a lease whose delete had no answer", faultForgetOnTimeout, 500},
		{"M4 delete without a revision", faultDeleteWithoutRevision, 200},
		{"M5 what exists in this node's name is this store's", faultExistsIsMine, 200},
		{"M18 the controller takes over before F", faultTakeOverEarly, modelSeeds},
		{"M19 F from the moment of the answer", faultBeatAtAnswer, 3 * modelSeeds},
		{"M25 free a claim's address without reading its uses", faultFreeUnread, 200},
		{"M24 M25 free without a mark, and believe a cached claim", faultCachedClaimUnmarked, 3 * modelSeeds},
		{"M26 M33 serve without a confirmation", faultServeUnconfirmed, 200},
		{"M43 a fencing write that changes nothing", faultFenceUnchanged, 1000},
		{"M44 serve after another boot without a seat", faultServeAfterBoot, 500},
		{"M45 ignore the term", faultIgnoreTerm, 200},
		{"M46 change the block size without closing", faultResizeOpen, 500},
		{"M47 siblings by their controller alone", faultSiblingsByOwner, 200},
		{"M51 F by the other side's clock", faultOthersClock, 200},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for seed := range tt.within {
				if w := runSeed(seed, tt.fault, false); w.failure != "" {
					t.Logf("seed %d: %s", seed, w.failure)
					return
				}
			}
			t.Errorf("not found within %d seeds", tt.within)
		})
	}
}
