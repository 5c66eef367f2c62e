package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
)

// A record is what an uninstallation knows of the nodes. It is kept in the cluster from
// before the agents end until the namespace goes, for another uninstallation to go on
// from where one was broken off.
type record struct {
	cleaner *appsv1.DaemonSet // nil: nobody knows where Tenure is on the nodes
	// cleaned says that it has done its work on every node.
	cleaned bool
}

// Keys of the ConfigMap.
const (
	cleanerKey = "cleaner.json"
	cleanedKey = "cleaned"
)

// attaches reports whether pods have networks by tenure-attach.
func (r record) attaches() bool {
	return r.cleaner != nil && r.cleaner.Annotations[attachesAnnotation] == "true"
}

// later says how nodes are cleaned that could not be, when nothing in the cluster knows
// any more how.
func (r record) later() string {
	at := map[string]string{}
	for _, arg := range r.cleaner.Spec.Template.Spec.InitContainers[0].Args {
		if flag, path, ok := strings.Cut(arg, "="); ok {
			at[flag] = path
		}
	}
	// In the cleaner's order.
	paths := []string{
		at["--conf"], at["--bin"] + "/tenure", at["--bin"] + "/tenure-attach", at["--state"] + "/agent", at["--state"] + "/journal", at["--run"] + "/*", at["--attach-state"] + "/*",
	}
	text := "When such a node is back, install Tenure again as it was and uninstall it, or run there, when the agent has ended:\n    rm -rf " + strings.Join(paths, " ")
	if r.attaches() {
		text = "No new pod starts on them before they are clean, as the configuration of tenure-attach is there. " + text
	}
	return text
}

// recordObject names the ConfigMap that keeps the record.
func recordObject() *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: cleanerName}}
}

// record returns what is known: by the agent as it is installed, by whatever means, else
// by an uninstallation that was broken off.
func (c *cluster) record(ctx context.Context) (record, error) {
	agent, err := c.agent(ctx)
	if err != nil {
		return record{}, err
	}
	if agent != nil {
		return record{cleaner: cleanerOf(agent)}, nil
	}
	kept := recordObject()
	if err := c.Get(ctx, client.ObjectKeyFromObject(kept), kept); apierrors.IsNotFound(err) {
		return record{}, nil
	} else if err != nil {
		return record{}, fmt.Errorf("ask how nodes are cleaned: %w", err)
	}
	r := record{cleaner: new(appsv1.DaemonSet), cleaned: kept.Data[cleanedKey] == "true"}
	if err := json.Unmarshal([]byte(kept.Data[cleanerKey]), r.cleaner); err != nil {
		return record{}, fmt.Errorf("ConfigMap %s/%s: %s: %w", namespace, cleanerName, cleanerKey, err)
	}
	return r, nil
}

// agent returns the agent's DaemonSet, nil if there is none.
func (c *cluster) agent(ctx context.Context) (*appsv1.DaemonSet, error) {
	var set appsv1.DaemonSet
	err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: agentName}, &set)
	if apierrors.IsNotFound(err) {
		return nil, nil //nolint:nilnil // there is none
	}
	if err != nil {
		return nil, fmt.Errorf("ask for what is installed: %w", err)
	}
	return &set, nil
}

// keep writes the record into the cluster.
func (c *cluster) keep(ctx context.Context, r record) error {
	text, err := json.Marshal(r.cleaner)
	if err != nil {
		return err
	}
	kept := recordObject()
	kept.Labels = r.cleaner.Labels
	kept.Data = map[string]string{cleanerKey: string(text)}
	if r.cleaned {
		kept.Data[cleanedKey] = "true"
	}
	if err := c.Create(ctx, kept); apierrors.IsAlreadyExists(err) {
		err = c.Update(ctx, kept)
		if err != nil {
			return fmt.Errorf("update ConfigMap %s: %w", cleanerName, err)
		}
	} else if err != nil {
		return fmt.Errorf("create ConfigMap %s: %w", cleanerName, err)
	}
	return nil
}

// installed reports whether something of Tenure's is in the cluster: its namespace, unless
// that is on its way out as the last of all, or the definition of its pools.
func (c *cluster) installed(ctx context.Context) (bool, error) {
	var ns corev1.Namespace
	err := c.Get(ctx, client.ObjectKey{Name: namespace}, &ns)
	if err == nil && ns.DeletionTimestamp == nil {
		return true, nil
	}
	if client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("look for namespace %s: %w", namespace, err)
	}
	err = c.List(ctx, &v1alpha1.IPPoolList{}, client.Limit(1))
	if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look for pools: %w", err)
	}
	return true, nil
}
