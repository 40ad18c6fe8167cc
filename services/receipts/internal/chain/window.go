package chain

// window is a map that holds at most max entries: the oldest goes first. It
// belongs to one goroutine.
type window[K comparable, V any] struct {
	m     map[K]V
	order []K // oldest first; keys that were deleted stay until they are passed
	max   int
}

func newWindow[K comparable, V any](limit int) *window[K, V] {
	return &window[K, V]{m: map[K]V{}, max: limit}
}

func (w *window[K, V]) get(k K) (V, bool) {
	v, ok := w.m[k]
	return v, ok
}

// put adds a key that was never put before.
func (w *window[K, V]) put(k K, v V) {
	w.m[k] = v
	w.order = append(w.order, k)
	for len(w.m) > w.max {
		delete(w.m, w.order[0])
		w.order = w.order[1:]
	}
	if len(w.order) > 2*len(w.m)+1024 {
		w.compact()
	}
}

func (w *window[K, V]) delete(k K) { delete(w.m, k) }

func (w *window[K, V]) compact() {
	kept := make([]K, 0, len(w.m))
	for _, k := range w.order {
		if _, ok := w.m[k]; ok {
			kept = append(kept, k)
		}
	}
	w.order = kept
}
