package npwg

import (
	"testing"

	"github.com/tenure-ipam/tenure/ipam/lean/plainjson/plainjsontest"
)

func TestStatusIsWrittenByHand(t *testing.T) {
	for _, list := range [][]Status{plainjsontest.Full[[]Status](t), {{}, {DNS: &DNS{}}}, {}} {
		plainjsontest.Written(t, AppendStatus(nil, list), list)
	}
}
