package agentapi

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"

	"github.com/tenure-ipam/tenure/ipam/lean/plainjson"
)

// MaxFrame is the greatest length of a frame's JSON, in bytes. It has room for
// a GC that lists some 8,000 attachments, more than any node runs.
const MaxFrame = 1 << 20

const headerSize = 4

// A FrameError says that the peer does not keep to the format of the socket:
// nothing that it sends further can be understood.
type FrameError struct{ Reason string }

func (e *FrameError) Error() string { return "node socket: " + e.Reason }

// A message is what a frame carries: a [Request] or a [Response].
type message interface {
	appendTo(b []byte) ([]byte, error)
}

// appendFrame appends the frame of m to b.
func appendFrame(b []byte, m message) ([]byte, error) {
	start := len(b)
	framed, err := m.appendTo(append(b, make([]byte, headerSize)...))
	if err != nil {
		return b, fmt.Errorf("encode %T: %w", m, err)
	}
	n := len(framed) - start - headerSize
	if n > MaxFrame {
		return b, &FrameError{fmt.Sprintf("a message of %d bytes exceeds the limit of %d", n, MaxFrame)}
	}
	binary.BigEndian.PutUint32(framed[start:], uint32(n))
	return framed, nil
}

// readFrame reads one frame into m. It returns io.EOF, and nothing else, where
// the peer hung up between two frames.
func readFrame(r io.Reader, m interface{ parse(json.RawMessage) error }) error {
	var header [headerSize]byte
	if _, err := io.ReadFull(r, header[:]); err != nil {
		if err == io.ErrUnexpectedEOF {
			return &FrameError{"the peer hung up inside a frame's length"}
		}
		return err
	}
	n := int(binary.BigEndian.Uint32(header[:]))
	if n == 0 || n > MaxFrame {
		return &FrameError{fmt.Sprintf("a frame of %d bytes; want 1 to %d", n, MaxFrame)}
	}
	body, err := readBody(r, n)
	if err != nil {
		return err
	}
	if !json.Valid(body) {
		err = json.Unmarshal(body, new(json.RawMessage)) // says where
	} else {
		err = m.parse(plainjson.Trim(body))
	}
	if err != nil {
		return &FrameError{"not a message: " + err.Error()}
	}
	return nil
}

// readBody reads n bytes. The memory grows with what arrives: a length alone
// claims none.
func readBody(r io.Reader, n int) ([]byte, error) {
	const step = 16 << 10
	body := make([]byte, 0, min(n, step))
	for len(body) < n {
		have := len(body)
		if have == cap(body) {
			body = append(make([]byte, 0, min(n, 4*have)), body...)
		}
		body = body[:min(n, cap(body))]
		if _, err := io.ReadFull(r, body[have:]); err != nil {
			if err == io.EOF || err == io.ErrUnexpectedEOF {
				return nil, &FrameError{fmt.Sprintf("the peer hung up inside a frame of %d bytes", n)}
			}
			return nil, err
		}
	}
	return body, nil
}
