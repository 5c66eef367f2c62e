// Package allocator decides which address comes next. It knows pools as shapes
// ([Shape]: which addresses exist and which may be handed out unasked), the part
// of a pool that one network may take ([View]), and which addresses one holder
// has handed out ([Space]), kept in an ordered map that the caller owns
// ([Table]).
//
// Everything here is a value or a pure function of values: no file, no clock, no
// log, no goroutine. A Space keeps all of its state in its Table, so that the
// table's owner decides what is durable and what is one transaction.
//
// The words are those of the project: a range is one CIDR of a pool; a block is
// an aligned slice of a range of at most [MaxBlockSize] addresses; an address is
// ordinary if it may be handed out to somebody who did not ask for it by name.
package allocator
