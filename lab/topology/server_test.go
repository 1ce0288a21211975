package topology

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/faultlab/faultlab/lab"
	"github.com/faultlab/faultlab/lab/labtest"
)

// servers are what the nodes of a fake lab say of themselves. They speak as
// much of the MySQL protocol as topologies ask for.
type servers struct {
	mu    sync.Mutex
	said  []string // "node: statement", other than questions, in order
	nodes map[string]*state
}

// state is what one server answers. A test changes it before it asks, or in
// change.
type state struct {
	version   string
	gtid      string
	readOnly  bool
	replica   map[string]string // SHOW REPLICA STATUS; nil is no row
	status    map[string]string // SHOW GLOBAL STATUS
	members   []map[string]string
	memberOf  map[string]string // replication_group_member_stats of itself
	variables map[string]string
	fail      string // when set, what every question but the first is answered
}

// cluster opens a fake lab for a topology, with the servers of a healthy
// cluster of it.
func cluster(t *testing.T, topo lab.Topology) (*lab.Cluster, *servers) {
	t.Helper()
	s := &servers{nodes: map[string]*state{}}
	fake := &labtest.Fake{Serve: func(n *labtest.FakeNode, conn net.Conn) { s.serve(n.Name(), conn) }}
	spec := lab.Spec{Name: "fake-" + topo.Name()}
	for i := range topo.NodeCount() {
		spec.Nodes = append(spec.Nodes, lab.NodeSpec{Name: fmt.Sprintf("n%d", i+1), Flavor: topo.Flavor()})
	}
	l, err := fake.Open(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close(t.Context()) })
	for i, n := range l.Nodes() {
		s.nodes[n.Name()] = healthyState(topo, i, l)
	}
	return &lab.Cluster{Lab: l, Topology: topo.Name(), Credentials: lab.Credentials{User: "faultlab", Password: "the-password"}}, s
}

const sourceGTID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"

func healthyState(topo lab.Topology, i int, l lab.Lab) *state {
	n := len(l.Nodes())
	st := &state{version: "9.7.4", gtid: sourceGTID + ":1-20", status: map[string]string{"Uptime": "100", "Com_commit": "20"},
		variables: map[string]string{"innodb_flush_log_at_trx_commit": "1"}}
	switch topo.Name() {
	case "async", "semisync":
		if i > 0 {
			st.readOnly = true
			st.replica = map[string]string{"Replica_IO_Running": "Yes", "Replica_SQL_Running": "Yes", "Last_IO_Error": "", "Last_SQL_Error": ""}
			st.status["Rpl_semi_sync_replica_status"] = "ON"
		} else {
			maps.Copy(st.status, map[string]string{"Rpl_semi_sync_source_status": "ON", "Rpl_semi_sync_source_clients": fmt.Sprint(n - 1),
				"Rpl_semi_sync_source_no_tx": "0", "Rpl_semi_sync_source_no_times": "0", "Rpl_semi_sync_source_yes_tx": "20"})
		}
	case "mgr":
		for j, m := range l.Nodes() {
			role := "SECONDARY"
			if j == 0 {
				role = "PRIMARY"
			}
			self := "0"
			if i == j {
				self = "1"
			}
			st.members = append(st.members, map[string]string{"MEMBER_ID": fmt.Sprintf("id-%d", j+1), "MEMBER_HOST": m.Endpoint().Addr.String(),
				"MEMBER_STATE": "ONLINE", "MEMBER_ROLE": role, "self": self})
		}
		st.memberOf = map[string]string{"certify": "0", "apply": "0", "gr_checked": "20", "gr_view": "3"}
	case "galera", "pxc":
		st.version = "10.11.14-MariaDB-deb13"
		st.status = map[string]string{"Uptime": "100", "wsrep_ready": "ON", "wsrep_cluster_status": "Primary", "wsrep_local_state_comment": "Synced",
			"wsrep_cluster_size": fmt.Sprint(n), "wsrep_local_recv_queue": "0", "wsrep_cluster_conf_id": "4"}
	}
	return st
}

func (s *servers) statements() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.said)
}

// answer is the result of a statement: columns and rows, none for OK.
func (s *servers) answer(node, q string) ([]string, [][]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.nodes[node]
	table := func(rows ...map[string]string) ([]string, [][]string, error) {
		if len(rows) == 0 {
			return []string{"none"}, nil, nil
		}
		columns := slices.Sorted(maps.Keys(rows[0]))
		var out [][]string
		for _, r := range rows {
			var row []string
			for _, c := range columns {
				row = append(row, r[c])
			}
			out = append(out, row)
		}
		return columns, out, nil
	}
	pairs := func(m map[string]string, match func(string) bool) ([]string, [][]string, error) {
		var out [][]string
		for _, k := range slices.Sorted(maps.Keys(m)) {
			if match(k) {
				out = append(out, []string{k, m[k]})
			}
		}
		return []string{"Variable_name", "Value"}, out, nil
	}
	switch {
	case q == "SELECT 1":
		return []string{"1"}, [][]string{{"1"}}, nil
	case q == "SELECT VERSION()":
		return []string{"v"}, [][]string{{st.version}}, nil
	case st.fail != "":
		return nil, nil, errors.New(st.fail)
	case q == "SELECT @@gtid_executed, @@super_read_only":
		readOnly := "0"
		if st.readOnly {
			readOnly = "1"
		}
		return []string{"g", "r"}, [][]string{{st.gtid, readOnly}}, nil
	case q == "SHOW REPLICA STATUS":
		if st.replica == nil {
			return table()
		}
		return table(st.replica)
	case strings.HasPrefix(q, "SHOW GLOBAL STATUS LIKE '"):
		like := strings.ToLower(strings.ReplaceAll(strings.Split(q, "'")[1], `\_`, "_"))
		prefix, any := strings.CutSuffix(like, "%")
		return pairs(st.status, func(k string) bool {
			k = strings.ToLower(k)
			return k == like || any && strings.HasPrefix(k, prefix)
		})
	case strings.HasPrefix(q, "SHOW GLOBAL VARIABLES"):
		return pairs(st.variables, func(k string) bool { return strings.Contains(q, "'"+k+"'") })
	case strings.Contains(q, "replication_group_members"):
		return table(st.members...)
	case strings.Contains(q, "replication_group_member_stats"):
		return table(st.memberOf)
	}
	s.said = append(s.said, node+": "+q)
	return nil, nil, nil
}

// serve talks to one client until it hangs up.
func (s *servers) serve(node string, conn net.Conn) {
	r := bufio.NewReader(conn)
	var seq byte
	send := func(payload ...byte) {
		head := []byte{byte(len(payload)), byte(len(payload) >> 8), byte(len(payload) >> 16), seq}
		seq++
		_, _ = conn.Write(append(head, payload...))
	}
	receive := func() ([]byte, error) {
		var head [4]byte
		if _, err := io.ReadFull(r, head[:]); err != nil {
			return nil, err
		}
		seq = head[3] + 1
		payload := make([]byte, int(head[0])|int(head[1])<<8|int(head[2])<<16)
		_, err := io.ReadFull(r, payload)
		return payload, err
	}
	text := func(to []byte, v string) []byte { // length-encoded
		if len(v) > 250 {
			to = append(to, 0xfc, byte(len(v)), byte(len(v)>>8))
		} else {
			to = append(to, byte(len(v)))
		}
		return append(to, v...)
	}
	ok, eof := []byte{0, 0, 0, 2, 0, 0, 0}, []byte{0xfe, 0, 0, 2, 0}

	const protocol41, secure, pluginAuth = 0x200, 0x8000, 0x80000
	capabilities := uint32(protocol41 | secure | pluginAuth)
	hello := append([]byte{10}, "9.7.4\x00"...)
	hello = append(hello, 1, 0, 0, 0)
	hello = append(hello, "saltsalt\x00"...)
	hello = binary.LittleEndian.AppendUint16(hello, uint16(capabilities))
	hello = append(hello, 45, 2, 0)
	hello = binary.LittleEndian.AppendUint16(hello, uint16(capabilities>>16))
	hello = append(hello, 21)
	hello = append(hello, make([]byte, 10)...)
	hello = append(hello, "saltsaltsalt\x00mysql_native_password\x00"...)
	send(hello...)
	if _, err := receive(); err != nil {
		return
	}
	send(ok...)
	for {
		p, err := receive()
		if err != nil || len(p) == 0 || p[0] == 1 { // COM_QUIT
			return
		}
		if p[0] != 3 { // COM_QUERY
			send(ok...)
			continue
		}
		columns, rows, err := s.answer(node, string(p[1:]))
		if err != nil {
			send(append([]byte{0xff, 0x51, 0x04, '#', 'H', 'Y', '0', '0', '0'}, err.Error()...)...)
			continue
		}
		if columns == nil {
			send(ok...)
			continue
		}
		send(byte(len(columns)))
		for _, c := range columns {
			def := text(nil, "def")
			for _, v := range []string{"", "", "", c, c} {
				def = text(def, v)
			}
			send(append(def, 0x0c, 45, 0, 0, 4, 0, 0, 0xfd, 0, 0, 0, 0, 0)...)
		}
		send(eof...)
		for _, row := range rows {
			var b []byte
			for _, v := range row {
				b = text(b, v)
			}
			send(b...)
		}
		send(eof...)
	}
}
