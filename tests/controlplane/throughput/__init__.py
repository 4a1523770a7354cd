"""`make bench-cluster`: pods a second through a real kube-scheduler, with and without extenders."""
