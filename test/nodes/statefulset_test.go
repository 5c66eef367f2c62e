package nodes_test

import (
	"fmt"
	"maps"
	"math"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	ipamclaims "github.com/k8snetworkplumbingwg/ipamclaims/pkg/crd/ipamclaims/v1alpha1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/workload"
	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/ipam/node/agent"
	"github.com/tenure-ipam/tenure/test/fleet"
)

// keeper is a StatefulSet whose pods keep their addresses. No controller makes pods of it.
type keeper struct {
	w   *world
	obj *appsv1.StatefulSet
}

// keeper makes a StatefulSet that selects the world's network and asks for claims of it;
// annotations are further ones of its template.
func (w *world) keeper(replicas int32, annotations map[string]string, change ...func(*appsv1.StatefulSet)) *keeper {
	w.t.Helper()
	labels := map[string]string{"app": w.name}
	o := &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: w.name},
		Spec:       appsv1.StatefulSetSpec{Replicas: &replicas, ServiceName: w.name, Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: template(labels)},
	}
	o.Spec.Template.Annotations = map[string]string{kube.AnnotationNetworks: w.definition, workload.AnnotationClaims: w.definition}
	maps.Copy(o.Spec.Template.Annotations, annotations)
	for _, c := range change {
		c(o)
	}
	return &keeper{w, fleet.Create(w.t, kc, o)}
}

// edit changes the StatefulSet.
func (k *keeper) edit(change func(*appsv1.StatefulSet)) {
	k.w.t.Helper()
	fleet.Edit(k.w.t, kc, k.obj, func() { change(k.obj) })
}

func (k *keeper) scale(n int32) {
	k.w.t.Helper()
	k.edit(func(o *appsv1.StatefulSet) { o.Spec.Replicas = &n })
}

func (k *keeper) retain(text string) {
	k.w.t.Helper()
	k.edit(func(o *appsv1.StatefulSet) { o.Annotations = map[string]string{workload.AnnotationRetention: text} })
}

func (k *keeper) name(ordinal int) string { return fmt.Sprintf("%s-%d", k.w.name, ordinal) }

// claim names the claim of an ordinal.
func (k *keeper) claim(ordinal int) *ipamclaims.IPAMClaim {
	return &ipamclaims.IPAMClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: k.name(ordinal) + "." + k.w.definition}}
}

// claims waits until the StatefulSet's claims are those of these ordinals, each with its
// addresses, and returns these.
func (k *keeper) claims(ordinals ...int) map[int][]netip.Prefix {
	k.w.t.Helper()
	var want []string
	for _, i := range ordinals {
		want = append(want, k.claim(i).Name)
	}
	slices.Sort(want)
	eventually(k.w.t, 10*time.Second, func() error {
		var list ipamclaims.IPAMClaimList
		if err := kc.List(k.w.t.Context(), &list, client.InNamespace("default"), client.MatchingLabels{workload.LabelSet: k.w.name}); err != nil {
			return err
		}
		var got []string
		for i := range list.Items {
			got = append(got, list.Items[i].Name)
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			return fmt.Errorf("claims %q; want %q", got, want)
		}
		return nil
	})
	all := map[int][]netip.Prefix{}
	for _, i := range ordinals {
		all[i] = allocated(k.w.t, k.claim(i))
	}
	return all
}

// pod makes the pod of an ordinal on a node, as the StatefulSet's controller does, and returns
// its interface net1.
func (k *keeper) pod(n *fleet.Node, ordinal int) fleet.Interface {
	k.w.t.Helper()
	return k.w.podWith(n, k.name(ordinal), k.obj.Spec.Template.Annotations, *metav1.NewControllerRef(k.obj, appsv1.SchemeGroupVersion.WithKind("StatefulSet")))
}

// owner waits until the claim of an ordinal has just this owner, written as its kind and
// name; "" is none.
func (k *keeper) owner(ordinal int, want string) *ipamclaims.IPAMClaim {
	k.w.t.Helper()
	c := k.claim(ordinal)
	await(k.w.t, 10*time.Second, c, func() error {
		var got []string
		for _, o := range c.OwnerReferences {
			got = append(got, o.Kind+" "+o.Name)
		}
		if owner := strings.Join(got, ", "); owner != want {
			return fmt.Errorf("claim %s is owned by %q; want %q", c.Name, owner, want)
		}
		return nil
	})
	return c
}

// said waits for a warning about an object that has this reason and these words.
func said(t testing.TB, kind, name, reason, words string) {
	t.Helper()
	about := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{Kind: kind}, ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	if e := fleet.Event(t, kc, about, reason, words); e.Type != corev1.EventTypeWarning {
		t.Errorf("the Event %s of %s %s is %s; want a warning", reason, kind, name, e.Type)
	}
}

// TestStatefulSetKeepsItsAddresses: through restarts on other nodes, down and up again, down
// to zero, and when it is deleted and made again.
func TestStatefulSetKeepsItsAddresses(t *testing.T) {
	w := newWorld(t, "keeps", "default", "10.70.0.0/24", "fd00:70::/64")
	k := w.keeper(3, nil, func(o *appsv1.StatefulSet) { o.Spec.PodManagementPolicy = appsv1.ParallelPodManagement })
	want := k.claims(0, 1, 2) // before any pod
	made := map[int]types.UID{}
	for i := range want {
		made[i] = k.owner(i, "").UID
	}
	unchanged := func(when string) { // not others with the same addresses
		t.Helper()
		for i, uid := range made {
			if got := k.owner(i, "").UID; got != uid {
				t.Errorf("%s: ordinal %d has another claim", when, i)
			}
		}
	}
	round := func(first, second *fleet.Node, ordinals ...int) {
		t.Helper()
		var pods []fleet.Interface
		for j, i := range ordinals {
			n := []*fleet.Node{first, second}[j%2]
			p := k.pod(n, i)
			same(t, n, p, want[i])
			same(t, n, p, want[i]) // C10
			pods = append(pods, p)
		}
		for j, p := range pods {
			endPod(t, []*fleet.Node{first, second}[j%2], p)
		}
	}
	round(w.a, w.b, 0, 1, 2)
	round(w.b, w.a, 0, 1, 2)
	k.scale(1)
	k.scale(0)
	k.scale(4)
	all := k.claims(0, 1, 2, 3) // the last of which shows that the controller has seen that
	unchanged("after down and up")
	if !slices.Equal(all[2], want[2]) {
		t.Errorf("after down and up ordinal 2 has %v; want %v", all[2], want[2])
	}
	round(w.b, w.a, 2, 1)
	k.scale(3)
	fleet.Delete(t, kc, k.obj)
	k.obj = w.keeper(5, nil).obj
	k.claims(0, 1, 2, 3, 4)
	unchanged("after it was made again")
	round(w.a, w.b, 1, 2, 0)
}

// TestStatefulSetsClaimsAreForItsPods: no other pod has one, be it by name or by reference.
func TestStatefulSetsClaimsAreForItsPods(t *testing.T) {
	w := newWorld(t, "forits", "default", "10.71.0.0/24")
	k := w.keeper(2, nil)
	want := k.claims(0, 1)
	bare := w.podWith(w.a, k.name(0), k.obj.Spec.Template.Annotations)
	if got := mustAdd(t, w.a, bare); slices.Equal(got, want[0]) {
		t.Errorf("a bare pod of that name got %v, the claim's", got)
	}
	said(t, "Pod", bare.Pod, agent.ReasonClaimNotInferred, "has no effect")
	endPod(t, w.a, bare)
	replica := w.podWith(w.a, k.name(1), k.obj.Spec.Template.Annotations, replicaSet(t, w.name))
	if got := mustAdd(t, w.a, replica); slices.Equal(got, want[1]) {
		t.Errorf("a ReplicaSet's pod of that name got %v, the claim's", got)
	}
	endPod(t, w.a, replica)
	_, err := w.a.Insist(w.pod(w.a, "forits-stranger", k.claim(0).Name, ""))
	fleet.WantCode(t, err, agent.CodeClaimRefused, "is for the pods of StatefulSet forits")
	_, err = w.a.Insist(w.pod(w.a, "forits-others", k.claim(0).Name, "", statefulSet(t, "forits-others")))
	fleet.WantCode(t, err, agent.CodeClaimRefused, "is for the pods of StatefulSet forits")
	same(t, w.b, k.pod(w.b, 0), want[0])

	broken := w.podWith(w.b, k.name(1), map[string]string{kube.AnnotationNetworks: w.definition, workload.AnnotationClaims: "Lan"},
		*metav1.NewControllerRef(k.obj, appsv1.SchemeGroupVersion.WithKind("StatefulSet")))
	_, err = w.b.Insist(broken)
	fleet.WantCode(t, err, 7, "annotation tenure.dev/claims")
}

// TestStatefulSetsClaimsAreKeptAsVolumesAre: who owns them is what the retention says.
func TestStatefulSetsClaimsAreKeptAsVolumesAre(t *testing.T) {
	w := newWorld(t, "volumes", "default", "10.72.0.0/24")
	k := w.keeper(3, map[string]string{workload.AnnotationRetention: "whenDeleted=Delete"})
	k.claims(0, 1, 2)
	k.owner(1, "StatefulSet volumes")
	k.retain("whenDeleted=Retain,whenScaled=Delete") // of the set itself: it counts before the template's
	k.owner(1, "")

	// Scaled down, the pod is there: the claim goes with it, unless it is wanted before.
	pod := k.pod(w.a, 2)
	want := mustAdd(t, w.a, pod)
	k.scale(2)
	k.owner(2, "Pod volumes-2")
	k.scale(3)
	k.owner(2, "")
	k.scale(2)
	k.owner(2, "Pod volumes-2")
	same(t, w.a, pod, want) // while it runs
	endPod(t, w.a, pod)
	k.claims(0, 1)
	k.scale(1) // that pod was never there
	k.claims(0)

	// Deleted with the set, which takes the pods' place as owner.
	k.retain("whenDeleted=Delete,whenScaled=Delete")
	k.owner(0, "StatefulSet volumes")
	fleet.Delete(t, kc, k.obj)
	k.claims()
	w.nothingGranted(10 * time.Second)
}

// TestStatefulSetDeletedWithoutItsPods: pods that run on keep their addresses, and a set of
// that name takes over the claims.
func TestStatefulSetDeletedWithoutItsPods(t *testing.T) {
	w := newWorld(t, "orphans", "default", "10.73.0.0/24")
	k := w.keeper(1, map[string]string{workload.AnnotationRetention: "whenDeleted=Delete"})
	want := k.claims(0)
	pod := k.pod(w.a, 0)
	same(t, w.a, pod, want[0])
	k.owner(0, "StatefulSet orphans")
	must(t, kc.Delete(t.Context(), k.obj, client.PropagationPolicy(metav1.DeletePropagationOrphan)))
	k.owner(0, "")
	fleet.Gone(t, kc, &appsv1.StatefulSet{ObjectMeta: k.obj.ObjectMeta}, 10*time.Second)
	same(t, w.a, pod, want[0])
	k.obj = w.keeper(1, map[string]string{workload.AnnotationRetention: "whenDeleted=Delete"}).obj
	k.owner(0, "StatefulSet orphans")
	endPod(t, w.a, pod)
	same(t, w.b, k.pod(w.b, 0), want[0])
}

// TestClaimsThatAreThereAlready: a person's becomes the StatefulSet's, with its addresses;
// somebody else's is left alone.
func TestClaimsThatAreThereAlready(t *testing.T) {
	w := newWorld(t, "already", "default", "10.74.0.0/24")
	k := &keeper{w: w}
	mine, theirs := w.claim(k.claim(0).Name), w.claim(k.claim(1).Name, owner("Database", "main"))
	want := allocated(t, mine)
	uid := mine.UID
	k.obj = w.keeper(3, nil).obj
	k.claims(0, 2)
	if c := k.owner(0, ""); c.UID != uid || !slices.Equal(kube.ClaimOf(c).IPs, want) {
		t.Errorf("the claim that was there is %s with %v; want %s with %v", c.UID, c.Status.IPs, uid, want)
	}
	said(t, "StatefulSet", w.name, "ClaimTaken", "it belongs to Database main")
	k.owner(1, "Database main")
	fleet.Delete(t, kc, theirs)
	k.scale(4) // looks again at once, and not in half a minute
	k.claims(0, 1, 2, 3)
	// One that a person deletes is made again.
	fleet.Delete(t, kc, k.claim(0))
	k.claims(0, 1, 2, 3)
}

// TestWrongWordsOfAStatefulSet: each is an Event with the reason, and no claim is made before
// all is right.
func TestWrongWordsOfAStatefulSet(t *testing.T) {
	w := newWorld(t, "words", "default", "10.75.0.0/24")
	for name, tt := range map[string]struct {
		annotations   map[string]string
		reason, words string
	}{
		"unknown":   {map[string]string{workload.AnnotationClaims: "nowhere", kube.AnnotationNetworks: "nowhere"}, "ClaimsNetworkNotFound", "network attachment definition default/nowhere does not exist"},
		"selected":  {map[string]string{workload.AnnotationClaims: "nowhere"}, "InvalidClaimsAnnotation", "it does not select default/nowhere"},
		"retention": {map[string]string{workload.AnnotationRetention: "whenScaled=Keep"}, "InvalidClaimsAnnotation", `whenScaled is "Keep"`},
		"range":     {map[string]string{workload.AnnotationRequested: "10.75.0.9-10.75.0.10"}, "InvalidClaimsAnnotation", "has fewer than 3 addresses"},
	} {
		t.Run(name, func(t *testing.T) {
			k := w.keeper(3, tt.annotations, func(o *appsv1.StatefulSet) { o.Name = "words-" + name })
			said(t, "StatefulSet", k.obj.Name, tt.reason, tt.words)
			var list ipamclaims.IPAMClaimList
			if err := kc.List(t.Context(), &list, client.MatchingLabels{workload.LabelSet: k.obj.Name}); err != nil || len(list.Items) > 0 {
				t.Errorf("%d claims, %v; want none", len(list.Items), err)
			}
			fleet.Delete(t, kc, k.obj)
		})
	}
}

// TestClaimsOfADefinitionThatComesLate, of ordinals that begin elsewhere, with a wish each.
func TestClaimsOfADefinitionThatComesLate(t *testing.T) {
	w := newWorld(t, "begins", "elsewhere", "10.76.0.0/24")
	const text = "10.76.0.20-10.76.0.29"
	k := w.keeper(2, map[string]string{
		kube.AnnotationNetworks: "elsewhere/after, elsewhere/definition-of-begins", workload.AnnotationRequested: "elsewhere/after=" + text,
		workload.AnnotationClaims: "elsewhere/after, elsewhere/definition-of-begins@net2",
	}, func(o *appsv1.StatefulSet) { o.Spec.Ordinals = &appsv1.StatefulSetOrdinals{Start: 5} })
	said(t, "StatefulSet", w.name, "ClaimsNetworkNotFound", "elsewhere/after does not exist")
	w.define("elsewhere", "after")
	for i := range 2 {
		for name, wish := range map[string]string{
			fmt.Sprintf("begins-%d.elsewhere.after", 5+i): fmt.Sprintf("10.76.0.%d", 20+i), fmt.Sprintf("begins-%d.elsewhere.definition-of-begins.net2", 5+i): "",
		} {
			c := &ipamclaims.IPAMClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
			allocated(t, c)
			if got := c.Annotations[workload.AnnotationRequested]; got != wish || c.Spec.Network != w.name {
				t.Errorf("claim %s asks for %q of network %s; want %q of %s", name, got, c.Spec.Network, wish, w.name)
			}
		}
	}
	pod := k.pod(w.a, 6)
	c := &ipamclaims.IPAMClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "begins-6.elsewhere.definition-of-begins.net2"}}
	pod.IfName = "net2"
	same(t, w.a, pod, allocated(t, c))
	if c.Spec.Interface != "net2" {
		t.Errorf("claim %s is for interface %q; want net2", c.Name, c.Spec.Interface)
	}
}

// TestTwoLeadersMakeOneClaim: of two controllers at work neither takes the other's claims for a
// stranger's, or makes them anew.
func TestTwoLeadersMakeOneClaim(t *testing.T) {
	stop, err := fleet.StartController(t.Context(), accounts.Controller)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	}()
	w := newWorld(t, "leaders", "default", "10.77.0.0/24")
	k := w.keeper(50, map[string]string{workload.AnnotationRetention: "whenDeleted=Delete"})
	var ordinals []int
	for i := range 50 {
		ordinals = append(ordinals, i)
	}
	k.claims(ordinals...)
	made := map[int]types.UID{}
	for i := range 50 {
		made[i] = k.owner(i, "StatefulSet "+k.obj.Name).UID
	}
	k.retain("whenDeleted=Retain,whenScaled=Delete")
	for i := range 50 {
		if c := k.owner(i, ""); c.UID != made[i] {
			t.Errorf("ordinal %d has another claim", i)
		}
	}
	var list eventsv1.EventList
	must(t, kc.List(t.Context(), &list, client.InNamespace("default")))
	for _, e := range list.Items {
		if e.Regarding.Name == k.obj.Name && e.Type == corev1.EventTypeWarning {
			t.Errorf("it is said of %s: %s: %s", e.Regarding.Name, e.Reason, e.Note)
		}
	}
	k.scale(0)
	k.claims()
	w.nothingGranted(20 * time.Second)
}

// TestMoreReplicasThanPods: a StatefulSet that names more replicas than there will ever be pods has
// claims for a bounded number of them, and one more when there is one more pod.
func TestMoreReplicasThanPods(t *testing.T) {
	w := newWorld(t, "replicas", "default", "10.79.0.0/20")
	k := w.keeper(math.MaxInt32, nil)
	counted := func(want int) {
		t.Helper()
		eventually(t, time.Minute, func() error {
			all := &metav1.PartialObjectMetadataList{}
			all.SetGroupVersionKind(ipamclaims.SchemeGroupVersion.WithKind("IPAMClaimList"))
			err := kc.List(t.Context(), all, client.InNamespace("default"), client.MatchingLabels{workload.LabelSet: w.name})
			if len(all.Items) != want {
				err = fmt.Errorf("%d claims, %w; want %d", len(all.Items), err, want)
			}
			return err
		})
	}
	counted(1000)
	time.Sleep(time.Second) // no more come
	counted(1000)
	before := k.obj.DeepCopy()
	k.obj.Status.Replicas = 1
	must(t, kc.Status().Patch(t.Context(), k.obj, client.MergeFrom(before)))
	counted(1001)
	fleet.Delete(t, kc, k.obj)
	must(t, kc.DeleteAllOf(t.Context(), &ipamclaims.IPAMClaim{}, client.InNamespace("default"), client.MatchingLabels{workload.LabelSet: w.name}))
}
