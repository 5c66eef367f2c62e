package v1alpha1

// Access says whether a namespace must be allowed to use a pool.
//
// +kubebuilder:validation:Enum=Everyone;RBAC
type Access string

// The ways of access.
const (
	// AccessEveryone: nobody is asked.
	AccessEveryone Access = "Everyone"
	// AccessRBAC: the group of the namespace's service accounts must be allowed the
	// verb use on the pool, cluster-wide.
	AccessRBAC Access = "RBAC"
)

// LabelSelector is a label selector as others of Kubernetes: all of its
// requirements must be met, and an empty one selects everything. It is a type of
// its own because its schema says what a label is, and how many there may be.
//
// +structType=atomic
type LabelSelector struct {
	// matchLabels are labels that must be there, with these values.
	// +optional
	// +kubebuilder:validation:MaxProperties=16
	// +kubebuilder:validation:XValidation:rule="self.all(k, size(k) < 318 && k.matches('^(([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*)/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$'))",message="has a key that no label can have: write name or prefix/name"
	MatchLabels map[string]LabelValue `json:"matchLabels,omitempty"`

	// matchExpressions are further requirements.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	MatchExpressions []LabelRequirement `json:"matchExpressions,omitempty"`
}

// LabelRequirement is what a selector requires of one label.
//
// +kubebuilder:validation:XValidation:rule="(self.operator in ['In', 'NotIn']) == (has(self.values) && size(self.values) > 0)",message="is set where operator is In or NotIn, and only there",fieldPath=".values"
type LabelRequirement struct {
	// key is the label's key.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:Pattern=`^(([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*)/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$`
	Key string `json:"key"`

	// operator says what is required: that the label's value is one of values, that it
	// is none of them or the label is not there, that the label is there, that it is not.
	// +required
	// +kubebuilder:validation:Enum=In;NotIn;Exists;DoesNotExist
	Operator string `json:"operator"`

	// values are those of In and NotIn.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Values []LabelValue `json:"values,omitempty"`
}

// LabelValue is the value of a label.
//
// +kubebuilder:validation:MaxLength=63
// +kubebuilder:validation:Pattern=`^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$`
type LabelValue string
