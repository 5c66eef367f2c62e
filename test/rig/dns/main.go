// Command dns is CoreDNS with what answers for Services, and nothing else: its plugins for clouds
// would be most of what is compiled.
package main

import (
	"github.com/coredns/coredns/coremain"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/kubernetes"
)

func main() { coremain.Run() }
