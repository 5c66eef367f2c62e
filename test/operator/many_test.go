package operator_test

import (
	"fmt"
	"log/slog"
	"os/exec"
	"runtime"
	"syscall"
	"testing"
	"time"

	nad "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/apis/k8s.cni.cncf.io/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	ships "github.com/tenure-ipam/tenure/cmd/tenure-controller/controller"
	"github.com/tenure-ipam/tenure/test/fleet"
)

// BenchmarkManyDefinitions measures what 500 definitions in whereabouts' form, disjoint and without
// a name, cost: a report of import, and the controller until each has a pool that is open.
func BenchmarkManyDefinitions(b *testing.B) {
	const many = 500
	cfg := ships.DefaultConfig()
	end, err := fleet.RunController(b.Context(), cfg, accounts.Controller, slog.New(slog.DiscardHandler))
	if err != nil {
		b.Fatal(err)
	}
	defer func() {
		if err := end(); err != nil {
			b.Error(err)
		}
	}()
	for b.Loop() {
		ns := fleet.Unique("many")
		create(b, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}})
		all := make([]*nad.NetworkAttachmentDefinition, many)
		text := func(i int, ipam string) string {
			return fmt.Sprintf(`{"cniVersion":"1.0.0","name":"%s-%d","type":"macvlan","ipam":{"type":%q,"range":"10.%d.%d.0/24"}}`, ns, i, ipam, 100+i/250, i%250)
		}
		for i := range all {
			all[i] = &nad.NetworkAttachmentDefinition{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: fmt.Sprint("net-", i)}}
			all[i].Spec.Config = text(i, "whereabouts")
			create(b, all[i])
		}
		began := time.Now()
		report := exec.CommandContext(b.Context(), kubectl.path, "import", "--from", "whereabouts", "--kubeconfig", kubectl.kubeconfig)
		if out, err := report.CombinedOutput(); err != nil {
			b.Fatalf("import: %v\n%s", err, out)
		}
		b.ReportMetric(time.Since(began).Seconds(), "import-s")
		b.ReportMetric(float64(report.ProcessState.SysUsage().(*syscall.Rusage).Maxrss)/1024, "import-MB")
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		for i, d := range all {
			d.Spec.Config = text(i, "tenure")
			if err := kc.Update(b.Context(), d); err != nil {
				b.Fatal(err)
			}
		}
		began = time.Now()
		for open := 0; open < many; time.Sleep(time.Second) { // not oftener: to list them costs as well
			open = openPools(b)
		}
		b.ReportMetric(time.Since(began).Seconds(), "open-s")
		runtime.GC()
		runtime.ReadMemStats(&after)
		b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/(1<<20), "heap-MB")
	}
}

// openPools returns how many pools are open.
func openPools(b *testing.B) (open int) {
	b.Helper()
	var pools v1alpha1.IPPoolList
	if err := kc.List(b.Context(), &pools, client.UnsafeDisableDeepCopy); err != nil {
		b.Fatal(err)
	}
	for i := range pools.Items {
		if pools.Items[i].Status.Leasing == v1alpha1.LeasingOpen {
			open++
		}
	}
	return open
}
