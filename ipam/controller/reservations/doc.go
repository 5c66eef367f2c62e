// Package reservations keeps the addresses of IPReservations: for routers, printers and
// appliances of a real segment. The truth is the grant on the block's lease, which package
// grants writes; nodes hear nothing of it. One whose address somebody has waits in the
// broker's line, and has it when it comes free.
package reservations
