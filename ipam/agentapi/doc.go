// Package agentapi is the node socket: how a CNI plugin, which lives for some
// milliseconds, asks the node's agent, which stays.
//
// A connection carries frames, each a JSON document behind its length:
//
//	 0        4                    4+n
//	+--------+----------------------+
//	| n, big | n bytes of JSON,     |   n is at least 1 and at most MaxFrame
//	| endian | a Request (client)   |
//	|        | or Response (server) |
//	+--------+----------------------+
//
// The client sends one [Request], waits for its [Response], and may then send
// the next one. It never sends ahead: whatever arrives while a request is being
// served is a fault of the peer. So a server that reads while it serves learns
// at once when the client hangs up, and ends the handler's context: an ADD whose
// runtime has given up is not committed.
package agentapi
