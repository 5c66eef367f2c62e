package allocator_test

import (
	"testing"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/allocator/allocatortest"
)

func TestMem(t *testing.T) { allocatortest.TestTable(t, allocator.NewMem()) }
