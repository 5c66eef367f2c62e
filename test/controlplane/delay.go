package controlplane

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// delayProxy stands between the API server and etcd and delays what the API
// server sends, each piece by the same time: order and throughput stay, as on a
// long line or before a slow disk.
type delayProxy struct {
	listener net.Listener
	target   string
	delay    atomic.Int64 // a time.Duration
	running  sync.WaitGroup

	mu     sync.Mutex
	conns  map[net.Conn]bool // guarded by mu
	closed bool              // guarded by mu
}

// newDelayProxy starts a proxy to target on a port of its own.
func newDelayProxy(target string) (*delayProxy, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", fmt.Sprintf("%s:%d", localhost, port))
	if err != nil {
		return nil, err
	}
	p := &delayProxy{listener: l, target: target, conns: map[net.Conn]bool{}}
	p.running.Go(p.accept)
	return p, nil
}

func (p *delayProxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return // closed
		}
		server, err := net.Dial("tcp", p.target)
		if err != nil { // etcd does not run: neither does the connection
			_ = client.Close()
			continue
		}
		if !p.keep(client, server) {
			return
		}
		p.running.Go(func() { p.forward(server, client) })
		p.running.Go(func() {
			_, _ = io.Copy(client, server) // its end is the connection's
			p.drop(client, server)
		})
	}
}

// piece is what was read at one moment.
type piece struct {
	data []byte
	due  time.Time
}

// forward sends what comes from client to server, each piece when it is due.
func (p *delayProxy) forward(server, client net.Conn) {
	defer p.drop(client, server)
	line := make(chan piece, 1024)
	p.running.Go(func() {
		defer close(line)
		for {
			buf := make([]byte, 32<<10)
			n, err := client.Read(buf)
			if n > 0 {
				line <- piece{buf[:n], time.Now().Add(time.Duration(p.delay.Load()))}
			}
			if err != nil {
				return
			}
		}
	})
	var broken error
	for c := range line { // to the end, so that the reader never waits for ever
		if broken == nil {
			time.Sleep(time.Until(c.due))
			_, broken = server.Write(c.data)
		}
		if broken != nil {
			_ = client.Close() // ends the reader
		}
	}
}

// keep remembers connections for close. It reports false, and closes them, once
// the proxy is closed.
func (p *delayProxy) keep(conns ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		if p.closed {
			_ = c.Close()
			continue
		}
		p.conns[c] = true
	}
	return !p.closed
}

func (p *delayProxy) drop(conns ...net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		_ = c.Close() // the other direction may have closed it
		delete(p.conns, c)
	}
}

func (p *delayProxy) close() error {
	err := p.listener.Close()
	p.mu.Lock()
	p.closed = true
	for c := range p.conns {
		_ = c.Close()
	}
	p.mu.Unlock()
	p.running.Wait()
	return err
}

// DelayEtcd makes everything that the API server asks of etcd take d longer, from
// now on; 0 ends it. It needs Options.DelayableEtcd.
func (cp *ControlPlane) DelayEtcd(d time.Duration) error {
	if cp.proxy == nil {
		return errors.New("controlplane: Options.DelayableEtcd is not set")
	}
	cp.proxy.delay.Store(int64(d))
	return nil
}
