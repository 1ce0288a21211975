package server

import (
	"fmt"
	"strings"

	"github.com/faultlab/faultlab/lab"
)

// Port is where servers speak the MySQL protocol.
const Port = 3306

// OptionFile is the text of a node's option file: the provider's part, then the
// caller's. initFile is where the server reads s.InitSQL, "" for nowhere.
// Errors go to the log by way of standard error, so that what is said before
// the server has read its options is there too.
func OptionFile(f lab.Flavor, s lab.Start, initFile string) string {
	var b strings.Builder
	fmt.Fprintf(&b, `[mysqld]
datadir = %s
socket = %s
pid-file = %s/mysqld.pid
port = %d
bind-address = *
tmpdir = /tmp
skip-name-resolve
`, DataDir, Socket, RunDir, Port)
	if f != lab.MariaDB {
		// The X protocol's port and the packages' import folder are not there.
		b.WriteString("mysqlx = OFF\nsecure-file-priv = NULL\n")
	}
	if initFile != "" {
		fmt.Fprintf(&b, "init-file = %s\n", initFile)
	}
	b.WriteString("\n")
	b.WriteString(s.Options)
	return b.String()
}
