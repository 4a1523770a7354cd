// Command etcd is the server's own main, built from the module that kube-apiserver is built with.
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() {
	etcdmain.Main(os.Args)
}
