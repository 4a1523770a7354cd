"""A real Kubernetes control plane on loopback, for tests and for `make cluster`.

etcd, kube-apiserver and kube-scheduler as they are released, with certificates and RBAC; no container
runtime. Nothing here is a stand-in.
"""
