package results

import "encoding/json"

// MarshalJSON writes lists and maps without members as [] and {}, never null:
// the promise of run.json is a list, and readers walk it.
func (r Run) MarshalJSON() ([]byte, error) {
	type plain Run // without this method
	p := plain(r)
	p.Rows = fill(r.Rows, func(row *Row) {
		row.InvalidReasons = fill(row.InvalidReasons, nil)
		row.Warnings = fill(row.Warnings, nil)
		if row.Server == nil {
			row.Server = map[string]float64{}
		}
	})
	p.Windows = fill(r.Windows, func(w *Window) { w.InvalidReasons = fill(w.InvalidReasons, nil) })
	p.Labs = fill(r.Labs, func(l *Lab) {
		l.Steps = fill(l.Steps, nil)
		l.Nodes = fill(l.Nodes, nil)
	})
	p.Observer = fill(r.Observer, nil)
	p.Verdicts = fill(r.Verdicts, nil)
	if p.Environment.Servers == nil {
		p.Environment.Servers = map[string]string{}
	}
	return json.Marshal(p)
}

// fill copies a list, never to nil, and touches each member of the copy.
func fill[T any](list []T, touch func(*T)) []T {
	out := append([]T{}, list...)
	if touch != nil {
		for i := range out {
			touch(&out[i])
		}
	}
	return out
}
