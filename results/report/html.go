package report

import (
	_ "embed"
	"html/template"
	"io"
)

//go:embed report.html.tmpl
var page string

// HTML writes the view as one file that needs no network and runs no script.
func HTML(w io.Writer, v View) error {
	t, err := template.New("report").Parse(page)
	if err != nil {
		return err
	}
	return t.Execute(w, struct {
		View
		Bars   *barChart
		Lines  []lineChart
		Legend []tick
	}{v, bars(v), lines(v), legend(v.Run)})
}
