package admission

import "errors"

// FieldError says which field of a configuration, lease or snapshot breaks
// which rule.
type FieldError struct{ Field, Rule string }

// Error gives the sentence "admission: field rule".
func (e *FieldError) Error() string { return "admission: " + e.Field + " " + e.Rule }

// faultList gathers every fault, so that a caller sees all at once.
type faultList struct{ all []error }

func (l *faultList) require(ok bool, field, rule string) {
	if !ok {
		l.all = append(l.all, &FieldError{field, rule})
	}
}

func (l *faultList) err() error { return errors.Join(l.all...) }
