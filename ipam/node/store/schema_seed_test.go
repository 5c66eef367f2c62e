package store

import "testing"

func TestSeeds(t *testing.T) {
	for _, tt := range []struct {
		bucket string
		seed   uint32
	}{{bucketMeta, seedMeta}, {bucketNode, seedNode}} {
		if got := seedOf(tt.bucket); got != tt.seed {
			t.Errorf("seed of %s is %#x; want %#x", tt.bucket, got, tt.seed)
		}
	}
}
