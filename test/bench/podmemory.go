package main

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	netv1 "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/apis/k8s.cni.cncf.io/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// What an agent's memory per pod is measured with: pods of three networks each.
const (
	memoryPods     = 300
	memoryNetworks = 20
	memorySpace    = "memory"
)

// podMemory measures what an agent keeps of a pod that selects networks, of all that it
// follows for it: the difference of its heap and stacks, without garbage.
func (b *bench) podMemory(ctx context.Context) {
	n := b.node
	p := n.startAgent(ctx, b.root, secondName, secondAt, "--profiles")
	defer func() { b.Must(p.Stop()) }()
	before, err := inUse(ctx, secondAt)
	b.Must(err)
	n.makeMemoryPods(ctx)
	defer func() {
		for _, o := range []client.Object{&corev1.Pod{}, &netv1.NetworkAttachmentDefinition{}} {
			b.Must(n.Client.DeleteAllOf(ctx, o, client.InNamespace(memorySpace), client.GracePeriodSeconds(0)))
		}
	}()
	b.settled(ctx, p)
	after, err := inUse(ctx, secondAt)
	b.Must(err)
	b.report.podMemory(float64(after-before) / memoryPods)
}

func (n *node) makeMemoryPods(ctx context.Context) {
	n.Must(n.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: memorySpace}},
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default", Namespace: memorySpace}}))
	n.createAll(ctx, memoryNetworks, func(i int) client.Object {
		config := fmt.Sprintf(`{"cniVersion":"1.0.0","name":"net-%d","type":"macvlan","master":"eth1","ipam":{"type":"host-local","subnet":"10.1.%d.0/24"}}`, i, i)
		return &netv1.NetworkAttachmentDefinition{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("net-%d", i), Namespace: memorySpace}, Spec: netv1.NetworkAttachmentDefinitionSpec{Config: config},
		}
	}, nil)
	n.createAll(ctx, memoryPods, func(i int) client.Object {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("p-%d", i), Namespace: memorySpace, Annotations: map[string]string{
				"k8s.v1.cni.cncf.io/networks": fmt.Sprintf("net-%d,net-%d,net-%d", i%memoryNetworks, (i+1)%memoryNetworks, (i+2)%memoryNetworks),
				// Of another program, which the agent must not keep.
				"example.org/applied": strings.Repeat("x", 64<<10),
			}},
			Spec: corev1.PodSpec{NodeName: secondName, Containers: []corev1.Container{{Name: "c", Image: "none"}}},
		}
	}, nil)
}

// inUse returns the bytes of an agent's heap and stacks after garbage was collected,
// twice: what finalizers have let go of, too.
func inUse(ctx context.Context, at string) (sum int64, err error) {
	for range 2 {
		if sum, err = profiled(ctx, at); err != nil {
			return 0, err
		}
	}
	return sum, nil
}

func profiled(ctx context.Context, at string) (sum int64, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+at+"/debug/pprof/heap?gc=1&debug=1", nil)
	if err != nil {
		return 0, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	found := 0
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		for _, key := range []string{"# HeapAlloc = ", "# Stack = "} { // of the stacks: in use / of the system
			if text, ok := strings.CutPrefix(lines.Text(), key); ok {
				text, _, _ = strings.Cut(text, " ")
				size, err := strconv.ParseInt(text, 10, 64)
				if err != nil {
					return 0, err
				}
				sum, found = sum+size, found+1
			}
		}
	}
	if found != 2 {
		return 0, fmt.Errorf("the heap's profile at %s, %s, does not say what is in use", at, resp.Status)
	}
	return sum, nil
}

// podMemory reports an agent's memory per pod.
func (r *report) podMemory(each float64) {
	r.note(newFigure("rss/pod", "kB", []float64{each / 1e3}).aimed("an agent's memory per pod with three networks", atMost(20)))
	r.explain("memory per pod", fmt.Sprintf("heap and stacks in use after garbage collection, the difference that %d pods make, which select three of %d networks each and have 64 kB of other annotations; %v after the last was made",
		memoryPods, memoryNetworks, settle))
}
